//! `cargo xtask lint`: what must be clean before a review is worth its time.

use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::command::{on_path, shown};

/// Runs every check; stops at the first that is not clean.
pub(crate) fn run() -> Result<()> {
    shown(cargo().args(["fmt", "--all", "--check"]))?;
    for other in ["ebpf/programs/Cargo.toml", "fuzz/Cargo.toml"] {
        shown(
            cargo()
                .args(["fmt", "--check", "--manifest-path"])
                .arg(cache::tree().join(other)),
        )?;
    }
    shown(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    shown(
        cargo()
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    if on_path("cargo-deny") {
        shown(cargo().args(["deny", "check"]))?;
    } else {
        println!("lint: cargo-deny is not installed, so deny.toml was not checked");
    }
    Ok(())
}

fn cargo() -> Command {
    let mut command = seaway_testbed::cargo();
    command.current_dir(cache::tree());
    command
}
