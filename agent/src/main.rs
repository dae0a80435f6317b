//! `seaway-agent`: parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use seaway_agent::app;
use seaway_agent::args::Cli;

/// `EX_USAGE` of sysexits(3): the command line or a file it names is wrong.
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // A closed terminal is the only failure, and there is nobody left to tell.
            drop(error.print());
            return ExitCode::from(code);
        }
    };
    match app::main(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(app::AppError::Usage(error)) => {
            eprintln!("seaway-agent: {error:#}");
            ExitCode::from(EXIT_USAGE)
        }
        Err(app::AppError::Failed(error)) => {
            eprintln!("seaway-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
