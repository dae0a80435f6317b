//! Flows that conntrack still sends where no endpoint is.
//!
//! DNAT is decided once per flow, and a flow of UDP lives for as long as its client
//! sends. So one that leads to an endpoint that has gone, or that was let through
//! untranslated while there was no rule, has to be removed; its next packet meets
//! the present rules. All others are left alone, those of restarted daemons too.
//!
//! Whether a flow is stale is told from the flow and the present endpoints, not from
//! what has changed. So the first round of a run finds what an earlier one missed. Of
//! Services that are no more a [`memory`] tells.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use seaway_netlink::{NetlinkError, Reason, Socket};
use seaway_proxy_core::backend::Settled;
use seaway_proxy_core::desired::{DesiredState, Family};
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

mod entry;
mod flows;
mod memory;
mod retry;
#[cfg(test)]
mod tests;
mod wire;

use entry::Entry;
use flows::Flows;
use memory::Memory;
use retry::Again;
use wire::Table;

/// What has been cleaned up for.
#[derive(Debug)]
pub(crate) struct Conntrack {
    /// Of each family.
    past: [Past; 2],
    memories: [Memory; 2],
    /// Whether the last failure has been told.
    told: bool,
    again: Again,
}

/// Where flows of one family may still come from.
#[derive(Debug, Default)]
struct Past {
    /// What was there at the last clean-up, as soon as one has worked.
    done: Option<Flows>,
    /// What has been there since, in part perhaps, and was not cleaned up for.
    missed: Flows,
}

impl Past {
    fn before(&self) -> Flows {
        let mut before = self.done.clone().unwrap_or_default();
        before.absorb(&self.missed);
        before
    }

    /// Whether `now` can make nothing stale. Nothing is known of an earlier run, but where there
    /// is no Service of these protocols nobody waits for what it has left.
    fn is_idle(&self, now: &Flows) -> bool {
        let same = self
            .done
            .as_ref()
            .map_or(now.is_empty(), |done| done == now);
        same && self.missed.is_empty()
    }
}

impl Conntrack {
    /// Knows what an earlier run has left in `run_dir`.
    pub(crate) fn new(run_dir: &Path) -> Self {
        let memories = Family::ALL.map(|family| Memory::open(run_dir, family));
        let past = memories.each_ref().map(|memory| Past {
            done: None,
            missed: memory.kept(),
        });
        Self {
            past,
            memories,
            told: false,
            again: Again::default(),
        }
    }

    /// `desired` is about to be written: whoever comes after a death in between must know what
    /// has been, and what may have come.
    pub(crate) fn prepare(&mut self, served: &[Family], desired: &DesiredState) {
        let families = Family::ALL.into_iter().zip(&self.past);
        for ((family, past), memory) in families.zip(&mut self.memories) {
            if served.contains(&family) {
                let mut flows = past.before();
                flows.absorb(&Flows::of(desired.family(family)));
                memory.keep(&flows);
            }
        }
    }

    /// Nothing is left to whoever comes next.
    pub(crate) fn forget(&self) -> io::Result<()> {
        let forgotten = self.memories.each_ref().map(Memory::forget);
        forgotten.into_iter().collect()
    }

    /// Removes what `desired` makes stale in the families that are `written`, which are some of
    /// those that are `served`. Nothing is asked of the kernel while no Service of these
    /// protocols changes.
    pub(crate) async fn settle(
        &mut self,
        served: &[Family],
        written: &[Family],
        desired: &DesiredState,
    ) -> Vec<Settled> {
        let (mut settled, mut failed) = (Vec::new(), false);
        let families = Family::ALL.into_iter().zip(&mut self.past);
        for ((family, past), memory) in families.zip(&mut self.memories) {
            let now = Flows::of(desired.family(family));
            if past.is_idle(&now) || !served.contains(&family) {
                continue;
            }
            if !written.contains(&family) {
                past.missed.absorb(&now);
                continue;
            }
            let started = Instant::now();
            let cleaned = clean(family, now.clone(), past.before()).await;
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
                    memory.keep(&now);
                    *past = Past {
                        done: Some(now),
                        missed: Flows::default(),
                    };
                    self.told = false;
                }
                Some(error) => {
                    past.missed.absorb(&now);
                    tell(family, removed, &error, &mut self.told);
                }
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

/// Loudly only once.
fn tell(family: Family, removed: usize, error: &NetlinkError, told: &mut bool) {
    if std::mem::replace(told, true) {
        debug!(%family, removed, %error, "Cannot remove all stale flows");
    } else {
        warn!(%family, removed, %error, "Cannot remove all stale flows, trying again");
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
