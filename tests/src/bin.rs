//! Where the programs under test are.

use std::path::{Path, PathBuf};

/// The path of one of our built programs, such as `seaway-cni`.
///
/// It is looked for in `SEAWAY_BIN_DIR`, else beside the running program (`target/debug` of a
/// test executable in `target/debug/deps`).
///
/// # Panics
/// When it is not there, with the command that builds it.
#[must_use]
#[track_caller]
pub fn bin(name: &str) -> PathBuf {
    let dir = bin_dir();
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "{name} is not in {}: build it with `cargo xtask build`, or set SEAWAY_BIN_DIR",
        dir.display()
    );
    path
}

fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("SEAWAY_BIN_DIR") {
        return PathBuf::from(dir);
    }
    let program = std::env::current_exe().expect("Linux tells a program its own path");
    let dir = program.parent().unwrap_or(Path::new("/"));
    if dir.ends_with("deps") {
        dir.parent().unwrap_or(dir).to_owned()
    } else {
        dir.to_owned()
    }
}

/// The folder for what is expensive to make and outlives a work tree: `SEAWAY_CACHE`, else
/// `~/.cache/seaway`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("SEAWAY_CACHE") {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    home.join(".cache/seaway")
}
