//! The CNI plugin's binary: the process's environment in, an exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let program = std::env::args_os().next().unwrap_or_default();
    seaway_cni::run(
        &program,
        &environment.collect(),
        &mut std::io::stdin().lock(),
        &mut std::io::stdout().lock(),
    )
}
