//! Waiting for something that can only be looked at.

use std::io::{self, ErrorKind, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// For each call of iptables and of `iptables-restore`; `iptables-save` has no such option. All
/// processes of iptables-legacy on a machine share one lock, whatever their namespaces, and
/// without this they fail while another test holds it. iptables-nft has no lock and ignores it.
pub const XTABLES_WAIT: &str = "--wait=30";

/// Looks again and again until `look` gives a value or fails, or `patience` is over.
///
/// `look` returns the reason why it is not so yet as its inner error.
///
/// # Errors
/// The failure of `look`, or the last reason when the time is over.
pub fn wait_until<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    const BETWEEN: Duration = Duration::from_millis(20);
    let deadline = Instant::now() + patience;
    loop {
        match look()? {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() > deadline => {
                bail!("waited {} s for {what}: {reason}", patience.as_secs());
            }
            Err(_) => crate::sweep::pause(BETWEEN),
        }
    }
}

/// Waits again when a signal has ended a wait.
///
/// The end of each program is a signal to a process in which tokio starts programs, whoever
/// waits for something else there, and the kernel takes no wait with a time limit up again by
/// itself (signal(7)).
///
/// # Errors
/// Those of `wait`, but for that one.
pub fn uninterrupted<T>(mut wait: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match wait() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// How long, or how often, a test does something: `short`, or `long` where `SEAWAY_LONG` is set,
/// which stands for the length that a case of the reference names and a run of all tests has no
/// time for.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if std::env::var_os("SEAWAY_LONG").is_some() {
        long
    } else {
        short
    }
}

/// Says that something is tried again, also where that goes well: libtest keeps what a test that
/// passes has printed to itself.
pub fn once_more(why: &str) {
    let line = format!("once more: {why}\n");
    // A terminal that went away is no reason to fail.
    io::stderr().lock().write_all(line.as_bytes()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_has_a_wait_begin_again() {
        for end in [Ok(7), Err(ErrorKind::WouldBlock)] {
            let mut waits = 0;
            let waited = uninterrupted(|| {
                waits += 1;
                match end {
                    _ if waits < 3 => Err(ErrorKind::Interrupted.into()),
                    Ok(length) => Ok(length),
                    Err(kind) => Err(io::Error::from(kind)),
                }
            });
            assert_eq!(waited.map_err(|error| error.kind()), end);
            assert_eq!(waits, 3);
        }
    }
}
