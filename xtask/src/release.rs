//! Programs as they are delivered.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cache;
use crate::command::shown;

/// Builds all that runs on a node.
///
/// # Errors
/// When something does not compile.
pub(crate) fn programs() -> Result<()> {
    let packages = ["seaway-agent", "seaway-proxy"];
    shown(
        seaway_testbed::cargo()
            .args(["build", "--release", "--bins"])
            .args(packages.map(|name| format!("--package={name}")))
            .current_dir(cache::tree()),
    )?;
    cni().map(drop)
}

/// Builds `seaway-cni` and tells the folder where it is.
///
/// A runtime starts it twice for every pod, so its start counts. Linked statically, nothing has
/// to be loaded and bound, a third of a call's CPU time; and with musl the start does not ask
/// the processor for its features, which a virtual machine has to ask its host for, many
/// times (0.3 ms, more than the rest of the start).
///
/// Built for size, and for a fixed address, sixteen calls at once take 0.93 times as long:
/// a call touches 54 pages instead of 71, of code and of addresses that it would have to
/// correct first. The price is that its code does not lie elsewhere in every process, which
/// makes a fault in memory harder to use. Stack, heap and mappings still do, it is safe Rust
/// nearly throughout, and it lives for a millisecond.
///
/// # Errors
/// When it does not compile.
pub(crate) fn cni() -> Result<PathBuf> {
    let release = target_dir().join("release");
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if has_target(&target) {
        shown(
            cargo_build_cni()
                .args(["--config", "profile.release.opt-level='s'"])
                .args(["--target", &target, "--", "-C", "relocation-model=static"]),
        )?;
        let built = target_dir().join(&target).join("release/seaway-cni");
        std::fs::create_dir_all(&release).context("make the folder of release builds")?;
        // Cargo's own file there has a second name, and somebody may be running it.
        let copy = release.join("seaway-cni.new");
        std::fs::copy(&built, &copy).with_context(|| format!("copy {}", built.display()))?;
        std::fs::rename(&copy, release.join("seaway-cni")).context("put seaway-cni in place")?;
    } else {
        println!("build: Rust's {target} cannot be had; seaway-cni starts slower with glibc");
        // For this program alone: procedural macros, which a flag for all reaches, cannot be
        // linked so.
        shown(cargo_build_cni().args(["--", "-C", "target-feature=+crt-static"]))?;
    }
    Ok(release)
}

fn cargo_build_cni() -> Command {
    let mut cargo = seaway_testbed::cargo();
    cargo
        .args(["rustc", "--release", "--package", "seaway-cni"])
        .args(["--bin", "seaway-cni"])
        // A name's hash is not worth asking the processor how to compute it.
        .args(["--features", "sha2/force-soft"])
        .current_dir(cache::tree());
    cargo
}

/// Gets the target's standard library where rustup can.
fn has_target(target: &str) -> bool {
    let there = || {
        let asked = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", target])
            .current_dir(cache::tree())
            .output();
        asked.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
    };
    there() || {
        let add = Command::new("rustup")
            .args(["target", "add", target])
            .current_dir(cache::tree())
            .status();
        add.is_ok_and(|status| status.success()) && there()
    }
}

/// As cargo chooses it.
pub(crate) fn target_dir() -> PathBuf {
    let tree = cache::tree();
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |dir| tree.join(dir))
}
