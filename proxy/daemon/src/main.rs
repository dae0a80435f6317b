//! The program `seaway-proxy`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    seaway_proxy::main(std::env::args_os())
}
