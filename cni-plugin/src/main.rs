//! The CNI plugin's binary: the process's environment in, an exit code out.

use std::ffi::OsString;
use std::process::ExitCode;

/// musl's own takes and returns memory by some sixty system calls in an `ADD`.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut stdout = std::io::stdout().lock();
    if let Some(code) = seaway_cni::upkeep(&words, &environment, &mut stdout) {
        return code;
    }
    let program = words.into_iter().next().unwrap_or_default();
    seaway_cni::run(
        &program,
        &environment,
        &mut std::io::stdin().lock(),
        &mut stdout,
    )
}
