//! Ctrl-C in the middle of the demo: what it has made goes with it.

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};
use seaway_testbed::node::Place;

/// From now on SIGINT, SIGTERM and SIGHUP remove the place called `name`, and end the program.
///
/// # Errors
/// When the signals cannot be blocked.
pub(super) fn clean_up_on_signals(name: &'static str) -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Threads that start later inherit this; children unblock them (seaway_testbed::Join).
    signals.thread_block().context("block signals")?;
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        eprintln!("demo: {signal}, taking everything down");
        let code = match Place::remove(name) {
            Ok(()) => 128 + signal as i32,
            Err(error) => {
                eprintln!("demo: {error:#}; try `cargo xtask demo --down`");
                1
            }
        };
        std::process::exit(code);
    });
    Ok(())
}
