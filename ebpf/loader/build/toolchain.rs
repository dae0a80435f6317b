//! Finding a compiler that can build the core library for BPF, and the linker.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Overrides the compiler of [`Toolchain::Bootstrap`].
pub(crate) const RUSTC: &str = "SEAWAY_EBPF_RUSTC";

/// Debian's package `rustc-web`, `rustc` and others put it there.
const DISTRIBUTION_RUSTC: &str = "/usr/bin/rustc";

const NO_TOOLCHAIN: &str = "\
cannot build the eBPF programs: no compiler with library source was found
either install the distribution's: apt-get install rustc-web rust-web-src
or a nightly: rustup toolchain install nightly --component rust-src
or build without the programs: SEAWAY_EBPF_SKIP=1";

const NO_LINKER: &str = "\
cannot build the eBPF programs: bpf-linker was not found in PATH or in cargo's bin folder
apt-get install llvm-22-dev libpolly-22-dev libzstd-dev zlib1g-dev
LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --version 0.13.0 \
--no-default-features --features llvm-22
or build without the programs: SEAWAY_EBPF_SKIP=1";

/// A way to build the core library for BPF.
pub(crate) enum Toolchain {
    /// A stable compiler that takes unstable options when it is told to bootstrap,
    /// driven by the cargo that runs this build.
    Bootstrap {
        /// The compiler.
        rustc: PathBuf,
    },
    /// A toolchain of rustup, with its own cargo.
    Rustup {
        /// Its name.
        name: String,
    },
}

/// The first toolchain that works.
pub(crate) fn find() -> Result<Toolchain, String> {
    if let Some(rustc) = env::var_os(RUSTC) {
        let rustc = PathBuf::from(rustc);
        return has_library(Command::new(&rustc))
            .then_some(Toolchain::Bootstrap {
                rustc: rustc.clone(),
            })
            .ok_or_else(|| format!("{RUSTC}={} has no library source", rustc.display()));
    }
    let rustc = PathBuf::from(DISTRIBUTION_RUSTC);
    if has_library(Command::new(&rustc)) {
        return Ok(Toolchain::Bootstrap { rustc });
    }
    let name = rustup_toolchains().into_iter().find(|name| {
        let mut rustc = Command::new("rustup");
        rustc.args(["run", name, "rustc"]);
        has_library(rustc)
    });
    name.map(|name| Toolchain::Rustup { name })
        .ok_or_else(|| NO_TOOLCHAIN.to_owned())
}

/// Where bpf-linker lies.
pub(crate) fn bpf_linker() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(cargo_bin())
        .map(|dir| dir.join("bpf-linker"))
        .find(|file| file.is_file())
        .ok_or_else(|| NO_LINKER.to_owned())
}

fn cargo_bin() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo")))?;
    Some(home.join("bin"))
}

/// Whether the source of the standard library lies beside the compiler.
fn has_library(mut rustc: Command) -> bool {
    let Some(sysroot) = output(
        rustc
            .args(["--print", "sysroot"])
            .env_remove("RUSTUP_TOOLCHAIN"),
    ) else {
        return false;
    };
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    // Cargo.lock comes with the source packages and is what -Zbuild-std reads first.
    fs::exists(library.join("Cargo.lock")).unwrap_or(false)
}

/// Nightly toolchains, as rustup names them.
fn rustup_toolchains() -> Vec<String> {
    output(Command::new("rustup").args(["toolchain", "list", "--quiet"]))
        .unwrap_or_default()
        .lines()
        .filter(|name| name.starts_with("nightly"))
        .map(str::to_owned)
        .collect()
}

/// Standard output of a command; none when it is missing or fails, which both mean
/// that this way is not available.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `PATH` with the linker's folder in front: rustc calls it by name for this target.
pub(crate) fn path_with(linker: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = linker
        .parent()
        .map(Path::to_path_buf)
        .into_iter()
        .chain(env::split_paths(&path));
    env::join_paths(dirs).unwrap_or(path.clone())
}
