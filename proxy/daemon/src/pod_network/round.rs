//! One blocking round: the kernel is made to agree; and looks at it before.

use seaway_podnet::{Changes, Desired, Named, Paths, PodNetwork, PodNetworkError, Uplink};
use tracing::warn;

use super::RoundPanicked;
use crate::chain::Chain;

/// What is to be done.
pub(super) struct Round {
    pub(super) want: Desired,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Everything is as it should be.
    pub(super) good: bool,
    pub(super) uplink: Option<Uplink>,
    /// Of pods, in bytes.
    pub(super) mtu: Option<u32>,
    /// Nothing if the whole could not be programmed.
    pub(super) changes: Option<Changes>,
    /// What concerns all pods of the node, with its causes.
    pub(super) failure: Option<String>,
}

impl Round {
    pub(super) fn run(self) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(error) = self.program(&mut outcome) {
            outcome.failure = Some(Chain(&error).to_string());
            return outcome;
        }
        let failed = outcome.changes.iter().flat_map(|changes| &changes.failed);
        outcome.good = failed.count() == 0;
        outcome
    }

    fn program(&self, outcome: &mut Outcome) -> Result<(), PodNetworkError> {
        let mut network = PodNetwork::open()?;
        // Known even if what comes then fails: its changes have to be followed. Who cannot
        // do without it says so below.
        outcome.uplink = network.uplink(&self.want).ok();
        outcome.changes = Some(network.apply(&self.want)?);
        outcome.mtu = Some(network.pod_mtu(&self.want)?);
        Ok(())
    }
}

/// The paths of `want` that an earlier run has made direct. A restart shall not send
/// packets another way, least of all to a node that has no overlay.
pub(super) async fn in_use(want: Desired) -> Result<Paths, RoundPanicked> {
    let look = move || {
        let routes = PodNetwork::open().and_then(|mut network| network.routes_in_use());
        routes.map(|routes| want.in_use(&routes))
    };
    let found = tokio::task::spawn_blocking(look).await;
    Ok(found.map_err(RoundPanicked)?.unwrap_or_else(|error| {
        warn!(error = %Chain(&error), "Cannot look for direct paths in use, proving them anew");
        Paths::default()
    }))
}

/// What the operator's link leads to, if one is named and there; else why that cannot be told.
/// Without it all peers would seem to be elsewhere, so there must be no round then.
pub(super) async fn named(
    link: Option<String>,
) -> Result<Result<Option<Named>, PodNetworkError>, RoundPanicked> {
    let Some(link) = link else {
        return Ok(Ok(None));
    };
    let look = move || PodNetwork::open().and_then(|mut network| network.named(&link));
    tokio::task::spawn_blocking(look)
        .await
        .map_err(RoundPanicked)
}
