//! What a test needs, and what happens when it is missing.

use std::io::Write as _;
use std::process::Command;

/// Whether the test may run: true as root.
///
/// Without root it prints the reason and returns false, and the test returns; where `CI` is
/// set it panics instead, since there a skipped test is a failed one.
#[must_use]
#[track_caller]
pub fn require_root() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    skip("needs root: it makes namespaces, links and mounts of its own");
    false
}

/// Says that the calling test is skipped, and why; panics where `CI` is set.
///
/// With `SEAWAY_SKIP_LOG` set to a file, one line per skip is added to it, which is how
/// `cargo xtask test` counts them.
#[track_caller]
pub fn skip(reason: &str) {
    let place = std::panic::Location::caller();
    assert!(
        std::env::var_os("CI").is_none(),
        "{place}: {reason}; a skip is a failure where CI is set"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed test");
    let line = format!("SKIPPED {test} ({place}): {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("SEAWAY_SKIP_LOG") {
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut log| log.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
}

/// Whether there is no strace, which shows and changes system calls; the calling test is then
/// skipped.
#[track_caller]
#[must_use]
pub fn strace_is_missing() -> bool {
    let missing = Command::new("strace").arg("-V").output().is_err();
    if missing {
        skip("needs strace, which shows and changes system calls");
    }
    missing
}
