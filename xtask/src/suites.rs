//! `cargo xtask test`: compiles everything once, then runs the test programs
//! part by part, each with its time, and adds up the results.

mod alone;
mod cases;
mod part;
mod program;
mod report;

use std::collections::BTreeMap;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ArgAction;

use crate::command::shown;
use crate::setup::{self, Scope};
use crate::tally::Tally;
use crate::{cache, fuzz, release};
use part::{PARTS, Part};
use program::Program;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What needs neither root nor network
    #[arg(long, action = ArgAction::SetTrue)]
    quick: bool,
    /// The kernel suites: network namespaces, eBPF
    #[arg(long, action = ArgAction::SetTrue)]
    kernel: bool,
    /// A standalone node on containerd
    #[arg(long, action = ArgAction::SetTrue)]
    node: bool,
    /// Other kernels in virtual machines
    #[arg(long, action = ArgAction::SetTrue)]
    vm: bool,
    /// A real control plane and two nodes
    #[arg(long, action = ArgAction::SetTrue)]
    cluster: bool,
    /// Only tests whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Do not look for missing packages and programs first
    #[arg(long, action = ArgAction::SetTrue)]
    no_setup: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct BuildArgs {
    /// Optimised, as it is delivered
    #[arg(long)]
    release: bool,
}

/// `cargo xtask build`.
pub(crate) fn build(args: &BuildArgs) -> Result<()> {
    setup::ensure(Scope::Build)?;
    if args.release {
        release::programs()
    } else {
        build_programs()
    }
}

/// Compiles every program of the workspace but this one, which runs and so is there.
pub(crate) fn build_programs() -> Result<()> {
    shown(
        seaway_testbed::cargo()
            .args(["build", "--workspace", "--bins", "--exclude", "xtask"])
            .current_dir(cache::tree()),
    )
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be set up or built; a failed test is in the exit code.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let wanted = wanted(args);
    let mut times: Vec<(String, Duration, Option<Tally>)> = Vec::new();
    let started = Instant::now();
    if !args.no_setup {
        let scope = wanted.iter().map(|part| part.scope()).max();
        setup::ensure(scope.unwrap_or(Scope::Build))?;
        times.push(("setup".into(), started.elapsed(), None));
    }
    let building = Instant::now();
    build_programs()?;
    let programs = compile_tests()?;
    times.push(("build".into(), building.elapsed(), None));

    // As vm_kernels reads it.
    let all_suites = std::env::var_os("SEAWAY_VM_SUITES").is_none_or(|suites| suites.is_empty());
    let whole = wanted.len() == PARTS.len() && args.filter.is_none() && all_suites;
    let mut seen = Seen::default();
    for part in wanted {
        let testing = Instant::now();
        println!("== {}", part.name());
        let programs = programs.get(&part).into_iter().flatten();
        let tally = seen.test(part, programs, args.filter.as_deref())?;
        times.push((part.name().into(), testing.elapsed(), Some(tally)));
    }
    if whole {
        let fuzzing = Instant::now();
        println!("== fuzz");
        fuzz::glance().context("a fuzz target does not build, or has failed")?;
        times.push(("fuzz".into(), fuzzing.elapsed(), None));
    }
    times.push(("total".into(), started.elapsed(), None));
    print_times(&times);
    seen.broken |= cases::write(&cache::tree(), &seen.verdicts, whole)? > 0;
    for test in &seen.unsteady {
        println!("passed only by itself, which is a fault of the test: {test}");
    }
    // The last line is for those who read only that.
    println!("{}", seen.total);
    Ok(if seen.broken || seen.total.failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What the parts so far have brought.
#[derive(Default)]
struct Seen {
    total: Tally,
    broken: bool,
    verdicts: cases::Verdicts,
    /// Tests that passed only by themselves.
    unsteady: Vec<String>,
}

impl Seen {
    /// Runs the programs of a part.
    fn test<'a>(
        &mut self,
        part: Part,
        programs: impl Iterator<Item = &'a Program>,
        filter: Option<&str>,
    ) -> Result<Tally> {
        let mut tally = Tally::default();
        for program in programs {
            let mut outcome = program.run(&part.arguments(filter))?;
            // What needs nothing has nothing to wait for.
            if part != Part::Quick {
                self.unsteady.extend(alone::again(program, &mut outcome)?);
            }
            self.broken |= !outcome.success;
            tally += outcome.tally;
            self.verdicts
                .add(&program.folder(), &program.target, outcome.verdicts);
        }
        self.total += tally;
        Ok(tally)
    }
}

fn wanted(args: &Args) -> Vec<Part> {
    let flags = [args.quick, args.kernel, args.node, args.vm, args.cluster];
    let all = !flags.contains(&true);
    PARTS
        .into_iter()
        .zip(flags)
        .filter(|(_, flag)| all || *flag)
        .map(|(part, _)| part)
        .collect()
}

fn print_times(times: &[(String, Duration, Option<Tally>)]) {
    println!();
    for (name, time, tally) in times {
        let counts = tally.map(|tally| tally.to_string()).unwrap_or_default();
        println!("{name:8} {:7.1} s  {counts}", time.as_secs_f64());
    }
}

/// Compiles every test program of the workspace and says where they are.
fn compile_tests() -> Result<BTreeMap<Part, Vec<Program>>> {
    println!("$ cargo test --workspace --no-run");
    let output = seaway_testbed::cargo()
        .args(["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(cache::tree())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    if !output.status.success() {
        bail!("compile the tests: {}", output.status);
    }
    let mut parts: BTreeMap<Part, Vec<Program>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value =
            serde_json::from_str(line).context("read cargo's messages")?;
        if let Some(program) = Program::from_message(&message) {
            parts
                .entry(Part::of(&program.package, &program.target))
                .or_default()
                .push(program);
        }
    }
    for programs in parts.values_mut() {
        programs.sort();
    }
    Ok(parts)
}
