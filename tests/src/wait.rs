//! Waiting for something that can only be looked at.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

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
