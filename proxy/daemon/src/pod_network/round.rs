//! One blocking round: the kernel is made to agree.

use seaway_podnet::{Changes, Desired, PodNetwork, PodNetworkError, Uplink};

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
