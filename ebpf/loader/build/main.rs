//! Builds `ebpf/programs` for the BPF target and hands the object to the crate.
//!
//! The programs need another compiler set-up than the rest: the core library is
//! built for `bpfel-unknown-none`, which only a nightly compiler, or one that is
//! told to behave like one, can do. Whichever of the two in [`toolchain`] is found
//! is used.
//!
//! `SEAWAY_EBPF_SKIP=1` skips all of it; the crate then compiles anywhere, and says
//! at run time that it has no programs.

#![allow(
    clippy::print_stdout,
    reason = "cargo reads what a build script prints"
)]

mod cargo;
mod toolchain;

use std::path::{Path, PathBuf};
use std::{env, fs, process};

const SKIP: &str = "SEAWAY_EBPF_SKIP";

fn main() {
    let manifest_dir = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let ebpf = manifest_dir
        .parent()
        .expect("the crate lies in ebpf/")
        .to_path_buf();
    let object = PathBuf::from(var("OUT_DIR")).join("programs.o");
    watch(&ebpf);
    if env::var_os(SKIP).is_some_and(|v| v != "0" && !v.is_empty()) {
        write(&object, &[]);
        return;
    }
    match build(&ebpf.join("programs")) {
        Ok(elf) => write(&object, &elf),
        Err(error) => fail(&error),
    }
}

fn build(programs: &Path) -> Result<Vec<u8>, String> {
    let linker = toolchain::bpf_linker()?;
    let toolchain = toolchain::find()?;
    let elf = cargo::build(programs, &toolchain, &linker)?;
    fs::read(&elf).map_err(|e| format!("read {}: {e}", elf.display()))
}

fn watch(ebpf: &Path) {
    for input in [
        "abi/Cargo.toml",
        "abi/src",
        "programs/Cargo.toml",
        "programs/Cargo.lock",
        "programs/src",
        "loader/build",
    ] {
        println!("cargo::rerun-if-changed={}", ebpf.join(input).display());
    }
    for input in [SKIP, toolchain::RUSTC] {
        println!("cargo::rerun-if-env-changed={input}");
    }
}

fn write(object: &Path, elf: &[u8]) {
    if let Err(error) = fs::write(object, elf) {
        fail(&format!("write {}: {error}", object.display()));
    }
}

/// cargo shows these lines as errors, apart from the output of the build script.
fn fail(error: &str) -> ! {
    for line in error.lines() {
        println!("cargo::error={line}");
    }
    process::exit(1)
}

fn var(name: &str) -> String {
    env::var(name).expect("cargo sets it for build scripts")
}
