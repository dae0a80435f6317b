//! Where the programs under test are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Cargo, to be run from a program that cargo may have started.
///
/// What cargo told that program about its package is taken away: build scripts that look at
/// such variables (ring's does) would run again, and all that depends on them be compiled again.
#[must_use]
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_about_a_package) {
            command.env_remove(&name);
        }
    }
    command
}

/// As in the Cargo book, "Environment variables Cargo sets for crates".
fn is_about_a_package(variable: &str) -> bool {
    [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
    ]
    .iter()
    .any(|prefix| variable.starts_with(prefix))
}

/// The folder for what is expensive to make and outlives a work tree: `SEAWAY_CACHE`, else
/// `$XDG_CACHE_HOME/seaway`, else `~/.cache/seaway`, below `/var/tmp` for those without a home.
#[must_use]
pub fn cache_dir() -> PathBuf {
    cache_dir_in(|name| std::env::var_os(name))
}

fn cache_dir_in(env: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(dir) = env("SEAWAY_CACHE") {
        return PathBuf::from(dir);
    }
    // The XDG base directory specification: a relative path counts as none.
    let xdg = env("XDG_CACHE_HOME").map(PathBuf::from);
    if let Some(dir) = xdg.filter(|dir| dir.is_absolute()) {
        return dir.join("seaway");
    }
    let home = env("HOME").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    home.join(".cache/seaway")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_a_package_is_taken_from_cargo() {
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_VERSION_PRE"] {
            assert!(is_about_a_package(name), "{name}");
        }
        for name in ["CARGO", "CARGO_HOME", "CARGO_NET_OFFLINE", "PATH"] {
            assert!(!is_about_a_package(name), "{name}");
        }
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let rows: [(&[(&str, &str)], &str); 5] = [
            (
                &[
                    ("SEAWAY_CACHE", "/s"),
                    ("XDG_CACHE_HOME", "/x"),
                    ("HOME", "/h"),
                ],
                "/s",
            ),
            (&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/seaway"),
            (
                &[("XDG_CACHE_HOME", ""), ("HOME", "/h")],
                "/h/.cache/seaway",
            ),
            (
                &[("XDG_CACHE_HOME", "x"), ("HOME", "/h")],
                "/h/.cache/seaway",
            ),
            (&[], "/var/tmp/.cache/seaway"),
        ];
        for (env, want) in rows {
            let get = |name: &str| {
                let found = env.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(cache_dir_in(get), PathBuf::from(want), "{env:?}");
        }
    }
}
