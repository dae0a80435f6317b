//! Flows that conntrack still sends where no endpoint is.
//!
//! DNAT is decided once per flow, and a flow of UDP lives for as long as its client
//! sends. So one that leads to an endpoint that has gone, or that was let through
//! untranslated while there was no rule, has to be removed; its next packet meets
//! the present rules. All others are left alone, those of restarted daemons too.
//!
//! Whether a flow is stale is told from the flow and the present endpoints, not from
//! what has changed. So the first round of a run finds what an earlier one missed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use seaway_netlink::{NetlinkError, Reason, Socket};
use seaway_proxy_core::backend::Settled;
use seaway_proxy_core::desired::{DesiredState, Family};
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

mod entry;
mod flows;
mod retry;
#[cfg(test)]
mod tests;
mod wire;

use entry::Entry;
use flows::Flows;
use retry::Again;
use wire::Table;

/// What has been cleaned up for.
#[derive(Debug, Default)]
pub(crate) struct Conntrack {
    /// Of each family, as soon as it has worked once.
    done: [Option<Flows>; 2],
    /// Whether the last failure has been told.
    told: bool,
    again: Again,
}

impl Conntrack {
    /// Removes what `desired` makes stale. Nothing is asked of the kernel while no
    /// Service of these protocols changes.
    pub(crate) async fn settle(
        &mut self,
        families: &[Family],
        desired: &DesiredState,
    ) -> Vec<Settled> {
        let (mut settled, mut failed) = (Vec::new(), false);
        for (family, done) in Family::ALL.into_iter().zip(&mut self.done) {
            let now = Flows::of(desired.family(family));
            let before = done.as_ref();
            let idle = before.map_or(now.is_empty(), |before| *before == now);
            if idle || !families.contains(&family) {
                continue;
            }
            let started = Instant::now();
            let cleaned = clean(family, now.clone(), before.cloned().unwrap_or_default()).await;
            let Cleaned { removed, error } = cleaned.unwrap_or_else(Cleaned::failed);
            settled.push(Settled {
                family,
                took: started.elapsed(),
                removed,
            });
            failed |= error.is_some();
            match error {
                None => {
                    debug!(%family, removed, "Removed stale flows");
                    *done = Some(now);
                    self.told = false;
                }
                Some(error) if !std::mem::replace(&mut self.told, true) => {
                    warn!(%family, removed, %error, "Cannot remove all stale flows, trying again");
                }
                Some(error) => debug!(%family, removed, %error, "Cannot remove all stale flows"),
            }
        }
        self.again.ended(failed);
        settled
    }

    /// When there is to be a round for what has failed, though nothing changes.
    pub(crate) fn again_at(&self) -> Option<tokio::time::Instant> {
        self.again.at()
    }
}

/// What has come of a clean-up.
#[derive(Debug)]
struct Cleaned {
    removed: usize,
    /// What has gone wrong first.
    error: Option<NetlinkError>,
}

impl Cleaned {
    fn failed(error: NetlinkError) -> Self {
        Self {
            removed: 0,
            error: Some(error),
        }
    }
}

/// The sockets belong to the network namespace of the polling thread.
async fn clean(family: Family, now: Flows, before: Flows) -> Result<Cleaned, NetlinkError> {
    let mut table = Table::open(family)?;
    let mut addresses = Socket::open()?;
    let work = move || {
        let own = own_addresses(&mut addresses, family)?;
        let stale = table.list(|entry| flows::stale(entry, &own, &now, &before))?;
        Ok(delete_all(&stale, |entry| table.delete(entry)))
    };
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// One that the kernel refuses to remove keeps no other from it. Where it does not answer,
/// each would take as long as the first.
fn delete_all(
    stale: &[Entry],
    mut delete: impl FnMut(&Entry) -> Result<(), NetlinkError>,
) -> Cleaned {
    let (mut removed, mut first) = (0, None);
    for entry in stale {
        let Err(error) = delete(entry) else {
            removed += 1;
            continue;
        };
        let goes_on = matches!(error.reason, Reason::Refused { .. });
        first = first.or(Some(error));
        if !goes_on {
            break;
        }
    }
    Cleaned {
        removed,
        error: first,
    }
}

fn own_addresses(socket: &mut Socket, family: Family) -> Result<BTreeSet<IpAddr>, NetlinkError> {
    let family = match family {
        Family::V4 => seaway_netlink::Family::V4,
        Family::V6 => seaway_netlink::Family::V6,
    };
    let addresses = socket.addresses(family, None)?;
    Ok(addresses.iter().map(|a| a.network.ip()).collect())
}
