//! Waiting for something outside of this process, always with a limit.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const INTERVAL: Duration = Duration::from_millis(250);

/// Asks again and again until there is an answer.
///
/// # Errors
/// The first error of `ask`, or, after `limit`, that `what` has not come true.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    let mut last_said = started;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if started.elapsed() > limit {
            bail!("not within {} s: {what}", limit.as_secs());
        }
        if last_said.elapsed() > Duration::from_secs(5) {
            super::say(&format!(
                "waits until {what} ({} s)",
                started.elapsed().as_secs()
            ));
            last_said = Instant::now();
        }
        crate::sweep::pause(INTERVAL);
    }
}
