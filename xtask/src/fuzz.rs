//! `cargo xtask fuzz`: builds the targets of `fuzz/` with coverage counters and runs each.
//!
//! The flags are those of cargo-fuzz without its sanitizer, which a stable compiler has
//! not; the targets panic on what is wrong, and unsafe code is not in their reach.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache;
use crate::command::shown;

/// In `fuzz/fuzz_targets/`.
const TARGETS: [&str; 5] = [
    "cni_args",
    "cni_conf",
    "ipam_record",
    "netlink_reply",
    "nft_reply",
];
/// SanitizerCoverage of LLVM, as libFuzzer wants it.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// With a target named, build scripts and macros go without [`FLAGS`].
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How long each target runs
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Only this one
    #[arg(long, value_parser = TARGETS)]
    target: Option<String>,
    /// Of libFuzzer's random numbers, for the same inputs again; else another one each time
    #[arg(long)]
    seed: Option<u32>,
}

/// Runs the verb. What is found stays in `fuzz/corpus`, a failing input in `fuzz/artifacts`.
///
/// # Errors
/// When a target does not build, or fails on an input; it has then said which.
pub(crate) fn run(args: &Args) -> Result<()> {
    let dir = cache::tree().join("fuzz");
    let mut build = seaway_testbed::cargo();
    build.args(["build", "--release", "--bins", "--target", TRIPLE]);
    // Where they are looked for, wherever the other programs go.
    build.arg("--target-dir").arg(dir.join("target"));
    shown(build.current_dir(&dir).env("RUSTFLAGS", FLAGS))?;
    for target in TARGETS {
        if args.target.as_deref().is_none_or(|only| only == target) {
            run_one(&dir, target, args)?;
        }
    }
    Ok(())
}

/// A few seconds of each: shows that the targets build, and that the seeds pass.
///
/// # Errors
/// As [`run`].
pub(crate) fn glance() -> Result<()> {
    run(&Args {
        seconds: 3,
        target: None,
        seed: Some(1),
    })
}

fn run_one(dir: &Path, target: &str, args: &Args) -> Result<()> {
    let (corpus, artifacts) = (
        dir.join("corpus").join(target),
        dir.join("artifacts").join(target),
    );
    for folder in [&corpus, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let program = dir.join("target").join(TRIPLE).join("release").join(target);
    let dictionary = dir.join("dictionaries").join(target);
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={}", args.seconds))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([
            "-max_len=4096",
            "-timeout=5",
            "-print_final_stats=1",
            "-verbosity=0",
        ])
        .arg(&corpus);
    if let Some(seed) = args.seed {
        command.arg(format!("-seed={seed}"));
    }
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let seeds = dir.join("seeds").join(target);
    if seeds.exists() {
        command.arg(seeds);
    }
    shown(&mut command)
}
