//! Says that the API server is away: at once, then now and then, and when it is back.

use std::time::Duration;

use kube::runtime::watcher;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::error::Chain;

/// How often a lasting outage is mentioned.
const REMIND_EVERY: Duration = Duration::from_secs(30);

/// Of one watch.
#[derive(Debug)]
pub(super) struct Outage {
    kind: String,
    since: Option<Instant>,
    said: Option<Instant>,
}

impl Outage {
    pub(super) fn new(kind: String) -> Self {
        Self {
            kind,
            since: None,
            said: None,
        }
    }

    pub(super) fn goes_on(&mut self, error: &watcher::Error) {
        let now = Instant::now();
        self.since.get_or_insert(now);
        let (kind, error) = (&self.kind, Chain(error));
        if self
            .said
            .is_some_and(|said| now.duration_since(said) < REMIND_EVERY)
        {
            debug!(kind, %error, "Watch failed again, trying again");
            return;
        }
        self.said = Some(now);
        warn!(kind, %error, "Cannot watch the API server, trying again");
    }

    pub(super) fn is_over(&mut self) {
        self.said = None;
        if let Some(since) = self.since.take() {
            let outage = since.elapsed();
            info!(kind = self.kind, ?outage, "Watching the API server again");
        }
    }
}
