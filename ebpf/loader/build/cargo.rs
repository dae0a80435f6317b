//! Running cargo for the BPF target.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{Toolchain, path_with};

const TARGET: &str = "bpfel-unknown-none";

/// Builds the programs; returns the object file.
pub(crate) fn build(
    programs: &Path,
    toolchain: &Toolchain,
    linker: &Path,
) -> Result<PathBuf, String> {
    // A folder of its own: the outer cargo holds the lock of the shared one.
    let target_dir = PathBuf::from(crate::var("OUT_DIR")).join("programs-target");
    let mut cargo = command(toolchain);
    cargo
        .current_dir(programs)
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            TARGET,
            "-Zbuild-std=core",
        ])
        .arg("--target-dir")
        .arg(&target_dir)
        // Keeps the BTF, which describes the maps to the kernel.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Clink-arg=--btf")
        .env("PATH", path_with(linker));
    let output = cargo.output().map_err(|e| format!("run {cargo:?}: {e}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("building the eBPF programs failed\n{stderr}"));
    }
    for line in stderr.lines().filter(|line| line.starts_with("warning")) {
        println!("cargo::warning=ebpf/programs: {line}");
    }
    Ok(target_dir.join(TARGET).join("release/seaway-ebpf-programs"))
}

fn command(toolchain: &Toolchain) -> Command {
    match toolchain {
        Toolchain::Bootstrap { rustc } => {
            let mut cargo = clean(Command::new(crate::var("CARGO")));
            cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
            cargo
        }
        Toolchain::Rustup { name } => {
            let mut rustup = clean(Command::new("rustup"));
            rustup.args(["run", name, "cargo"]);
            rustup
        }
    }
}

/// Takes away what the outer cargo, clippy or rustup set for the outer build; what
/// says where the user's registries and proxies are stays.
fn clean(mut command: Command) -> Command {
    const KEEP: [&str; 6] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_REGISTR",
        "RUSTUP_",
    ];
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let outer = ["CARGO", "RUST", "CLIPPY_"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let kept = KEEP.iter().any(|prefix| text.starts_with(prefix));
        if outer && (!kept || text == "RUSTUP_TOOLCHAIN") {
            command.env_remove(&name);
        }
    }
    command
}
