//! `cargo xtask setup`: makes a Debian machine ready; does nothing on a ready one.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command::{on_path, output, quiet};
use crate::{cache, gotools};

/// The eBPF tool chain and what the programs call at run time.
const BUILD_PACKAGES: &[&str] = &[
    "g++",
    "gcc",
    "libc6-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "llvm-22-dev",
    "rust-web-src",
    "rustc-web",
    "zlib1g-dev",
];
/// What demo, kernel and node tests use.
const NODE_PACKAGES: &[&str] = &[
    "busybox-static",
    "conntrack",
    "containerd",
    "curl",
    "ipset",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "nftables",
    "procps",
    "psmisc",
    "runc",
    "strace",
    "util-linux",
];
/// What the VM tests use.
const VM_PACKAGES: &[&str] = &[
    "cpio",
    "e2fsprogs",
    "mmdebstrap",
    "qemu-system-x86",
    "xz-utils",
];
/// What the cluster tests use, besides the Go parts.
const CLUSTER_PACKAGES: &[&str] = &["docker-registry", "openssl", "skopeo"];

const BPF_LINKER_VERSION: &str = "0.13.0";

/// What the machine is to be made ready for. Each includes the one before it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Compiling, and the quick tests
    Build,
    /// The demo, kernel and node tests
    Node,
    /// Virtual machines
    Vm,
    /// A real control plane from Go modules
    #[default]
    Cluster,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What to make the machine ready for
    #[arg(long, value_enum, default_value_t)]
    scope: Scope,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure(args.scope)
}

/// Makes the machine ready; says only what it does.
///
/// # Errors
/// When something is missing that it cannot install; the error names it.
pub(crate) fn ensure(scope: Scope) -> Result<()> {
    let _lock = cache::lock()?;
    let mut packages: Vec<&str> = BUILD_PACKAGES.to_vec();
    if scope >= Scope::Node {
        packages.extend(NODE_PACKAGES);
    }
    if scope >= Scope::Vm {
        packages.extend(VM_PACKAGES);
    }
    if scope >= Scope::Cluster {
        packages.extend(CLUSTER_PACKAGES);
    }
    ensure_packages(&packages)?;
    ensure_bpf_linker()?;
    if scope >= Scope::Cluster {
        gotools::ensure()?;
    }
    println!("setup: this machine has all that {scope:?} needs");
    Ok(())
}

fn ensure_packages(wanted: &[&str]) -> Result<()> {
    let installed = installed_packages();
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|name| !installed.contains(*name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !on_path("apt-get") {
        bail!(
            "this machine has no apt-get; install these by hand: {}",
            missing.join(" ")
        );
    }
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "run as root: apt-get install --no-install-recommends {}",
            missing.join(" ")
        );
    }
    println!(
        "setup: installing {} packages: {}",
        missing.len(),
        missing.join(" ")
    );
    quiet("apt-get update", apt().arg("update"))?;
    quiet(
        "apt-get install",
        apt()
            .args(["install", "-y", "--no-install-recommends"])
            .args(&missing),
    )
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-q").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn installed_packages() -> BTreeSet<String> {
    let listing = output(
        Command::new("dpkg-query")
            .args(["--show", "--showformat=${db:Status-Status} ${Package}\n"]),
    );
    parse_packages(&listing.unwrap_or_default())
}

fn parse_packages(listing: &str) -> BTreeSet<String> {
    listing
        .lines()
        .filter_map(|line| line.strip_prefix("installed "))
        .map(str::to_owned)
        .collect()
}

/// Links BPF objects. Built against the LLVM of the packages above, as no
/// binary of it is packaged.
fn ensure_bpf_linker() -> Result<()> {
    let version = output(Command::new("bpf-linker").arg("--version"));
    if version.is_some_and(|text| text.trim().ends_with(BPF_LINKER_VERSION)) {
        return Ok(());
    }
    println!("setup: building bpf-linker {BPF_LINKER_VERSION}, once");
    quiet(
        "cargo install bpf-linker",
        seaway_testbed::cargo()
            .args(["install", "bpf-linker", "--version", BPF_LINKER_VERSION])
            .args(["--no-default-features", "--features", "llvm-22", "--locked"])
            .env("LLVM_PREFIX", "/usr/lib/llvm-22")
            .current_dir(cache::tree()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let packages = parse_packages("installed jq\nconfig-files curl\nnot-installed runc\n");
        assert_eq!(packages, BTreeSet::from(["jq".to_owned()]));
    }
}
