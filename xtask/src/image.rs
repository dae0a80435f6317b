//! `cargo xtask image`: the container image of what runs on a node, without Docker.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use seaway_testbed::images;

use crate::command::shown;
use crate::setup::{self, Scope};
use crate::{release, suites};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The folder for it; `target/image` if not given
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Name and tag that the image goes by
    #[arg(long, default_value = images::SEAWAY, value_parser = name)]
    name: String,
    /// With the programs of a development build, for tests on this machine
    #[arg(long)]
    debug: bool,
}

/// Runs the verb: `seaway.tar`, an OCI archive, and `seaway`, the same unpacked: an OCI layout.
///
/// # Errors
/// When something does not compile, is not installed, or cannot be written.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(Scope::Node)?;
    let bin = if args.debug {
        suites::build_programs()?;
        release::target_dir().join("debug")
    } else {
        release::programs()?;
        release::target_dir().join("release")
    };
    let dir = args.output.clone();
    let dir = dir.unwrap_or_else(|| release::target_dir().join("image"));
    let layout = dir.join("seaway");
    if layout.exists() {
        // Only what is one: the folder is somebody's choice.
        let is_layout = layout.join("oci-layout").is_file();
        ensure!(is_layout, "{} is no image of ours", layout.display());
        std::fs::remove_dir_all(&layout).context("remove the former image")?;
    }
    std::fs::create_dir_all(&layout).with_context(|| format!("make {}", layout.display()))?;
    let archive = dir.join("seaway.tar");
    images::product(&bin, &[&args.name], &archive)?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive);
    shown(tar.arg("--directory").arg(&layout))?;
    println!("{}: OCI archive of {}", archive.display(), args.name);
    println!("  ctr -n k8s.io images import {}", archive.display());
    println!(
        "  skopeo copy oci-archive:{} docker://REGISTRY/seaway:TAG",
        archive.display()
    );
    Ok(())
}

/// All of it has to be told: without registry or tag, programs do not agree on what is meant.
fn name(value: &str) -> Result<String, String> {
    let is_full = value.split_once('/').is_some_and(|(registry, rest)| {
        let is_host = registry == "localhost" || registry.contains(['.', ':']);
        let tagged = rest.rsplit_once(':');
        is_host && tagged.is_some_and(|(name, tag)| !name.is_empty() && !tag.is_empty())
    });
    if is_full {
        Ok(value.to_owned())
    } else {
        Err("expected REGISTRY/NAME:TAG, such as registry.example/seaway:1".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_are_told_in_full() {
        for good in ["localhost/seaway:dev", "localhost:5000/a/seaway:1"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in [
            "seaway:1",
            "a/seaway:1",
            "localhost:5000/seaway",
            "b.c/seaway:",
            "b.c/:1",
        ] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
