//! Says what is not programmed, once per change.

use std::collections::BTreeSet;

use seaway_proxy_core::Skipped;
use seaway_proxy_core::skipped::SkipClass;
use tracing::{debug, info, warn};

/// What has been said already.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    known: BTreeSet<Skipped>,
}

impl Skips {
    /// Logs what is new among `skipped`; gives how many an owner or operator should look at.
    pub(crate) fn report(&mut self, skipped: Vec<Skipped>) -> usize {
        let now: BTreeSet<Skipped> = skipped.into_iter().collect();
        for skip in now.difference(&self.known) {
            log(skip);
        }
        for skip in self.known.difference(&now) {
            debug!(kind = %skip.kind, object = %skip.object, field = skip.field, "No longer skipped");
        }
        self.known = now;
        self.known
            .iter()
            .filter(|s| s.reason.class() != SkipClass::Intended)
            .count()
    }
}

fn log(skip: &Skipped) {
    let Skipped {
        kind,
        object,
        field,
        reason,
    } = skip;
    let class = reason.class().as_str();
    match reason.class() {
        SkipClass::Intended => debug!(%kind, %object, field, %reason, "Left out"),
        SkipClass::Unsupported => info!(%kind, %object, field, %reason, class, "Skipped"),
        SkipClass::Malformed | SkipClass::Contested => {
            warn!(%kind, %object, field, %reason, class, "Skipped");
        }
    }
}
