//! Says when somebody else's firewall may drop what pods send to others.
//!
//! Nothing of ours overrides a drop in another nftables table, so the operator has to know.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::time::Duration;

use seaway_firewall::{Firewall, FirewallError, ForeignDrop, Watch};
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::chain::Chain;
use crate::metrics::Metrics;
use crate::pod_network::{RoundPanicked, registered};

/// A reload of a firewall is many changes, and hostPorts come with every pod.
const APART: Duration = Duration::from_secs(1);
/// Should notifications fail.
const LOOK: Duration = Duration::from_secs(30);

/// The task.
#[derive(Debug)]
pub(crate) struct ForeignFirewall {
    metrics: Metrics,
    stop: CancellationToken,
    known: BTreeSet<ForeignDrop>,
    /// nftables' generation at the last look.
    generation: Option<u32>,
    /// Whether the present trouble has been told.
    told: bool,
}

/// nftables' generation, and what drops if that is not the one that is known.
type Seen = (u32, Option<Vec<ForeignDrop>>);

impl ForeignFirewall {
    pub(crate) fn new(metrics: Metrics, stop: CancellationToken) -> Self {
        Self {
            metrics,
            stop,
            known: BTreeSet::new(),
            generation: None,
            told: false,
        }
    }

    /// Runs until stopped.
    pub(crate) async fn run(mut self) -> Result<(), RoundPanicked> {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.follow())
            .await
            .unwrap_or(Ok(()))
    }

    async fn follow(&mut self) -> Result<(), RoundPanicked> {
        let opened = Watch::open().map_err(io::Error::other);
        // Without it upkeep says so; it has one of its own.
        let mut watch = opened.and_then(registered).ok();
        loop {
            let generation = self.generation;
            let seen = spawn_blocking(move || look(generation))
                .await
                .map_err(RoundPanicked)?;
            self.take(seen);
            sleep(APART).await;
            tokio::select! {
                ok = changed(&mut watch) => if !ok { watch = None },
                () = sleep(LOOK) => {}
            }
        }
    }

    fn take(&mut self, seen: Result<Seen, FirewallError>) {
        match seen {
            Ok((generation, found)) => {
                (self.generation, self.told) = (Some(generation), false);
                if let Some(found) = found {
                    self.report(found.into_iter().collect());
                }
            }
            Err(error) if !self.told => {
                warn!(error = %Chain(&error), "Cannot look for other firewalls that drop");
                self.told = true;
            }
            Err(_) => {}
        }
    }

    fn report(&mut self, now: BTreeSet<ForeignDrop>) {
        for ForeignDrop {
            family,
            table,
            chain,
        } in now.difference(&self.known)
        {
            warn!(
                family,
                table,
                chain,
                "Another firewall drops forwarded packets at the end of its chain; pods are cut off unless it has accepts for them"
            );
        }
        for ForeignDrop {
            family,
            table,
            chain,
        } in self.known.difference(&now)
        {
            info!(
                family,
                table, chain, "Another firewall's chain that drops is gone"
            );
        }
        self.metrics.pod_network.foreign_drops(now.len());
        self.known = now;
    }
}

fn look(known: Option<u32>) -> Result<Seen, FirewallError> {
    let mut firewall = Firewall::open()?;
    // Before the list: what changes in between is seen by the next look.
    let generation = firewall.generation()?;
    let found = (known != Some(generation)).then(|| firewall.foreign_drops());
    Ok((generation, found.transpose()?))
}

/// Returns when anything of nftables may have changed; `false` when that cannot be heard
/// any more.
async fn changed(watch: &mut Option<AsyncFd<Watch>>) -> bool {
    let Some(watch) = watch else {
        return pending().await;
    };
    let Ok(mut ready) = watch.readable_mut().await else {
        return false;
    };
    let taken = ready.get_inner_mut().take();
    // All of it has been taken.
    ready.clear_ready();
    taken.is_ok()
}
