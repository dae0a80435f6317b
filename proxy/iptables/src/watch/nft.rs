//! Listens to nftables.
//!
//! iptables-nft's `nat` and `filter` are tables of nftables, so every change of them
//! is told, ours too. Ours are told apart by counting: a transaction makes the
//! kernel's generation one higher, and we know how many we have made.

use std::time::Duration;

use seaway_firewall::{Firewall, FirewallError, Heard};
use seaway_proxy_core::desired::Family;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::{NoWatch, TABLES};
use crate::rendered::PREFIX;

/// Notifications are taken this often at most: a program that rewrites its tables all
/// day costs no more, and what does not fit into the socket meanwhile is lost, which
/// is heard as well.
const APART: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Ear {
    watch: AsyncFd<seaway_firewall::Watch>,
    families: &'static [Family],
    /// nftables' generation before our write.
    generation: Option<u32>,
    /// Whether nothing is heard meanwhile.
    deaf: bool,
    /// When notifications are taken next.
    not_before: Instant,
}

/// What has come since the last look.
#[derive(Debug, Default)]
struct Heap {
    /// It concerns our rules.
    ours: bool,
    lost: bool,
}

impl Ear {
    pub(super) fn open(families: &'static [Family]) -> Result<Self, NoWatch> {
        let watch = seaway_firewall::Watch::open()?;
        Ok(Self {
            watch: registered(watch)?,
            families,
            generation: None,
            deaf: false,
            not_before: Instant::now(),
        })
    }

    pub(super) fn forget(&mut self) -> Result<(), NoWatch> {
        self.hear_again()?;
        self.take()?;
        Ok(())
    }

    /// A large write is not listened to: to tell of it takes the kernel as long as to do it.
    pub(super) fn before_write(&mut self, large: bool) -> Result<bool, NoWatch> {
        // First the number: what comes between the two counts as somebody else's.
        self.generation = generation().ok();
        if large {
            self.watch.get_mut().deafen()?;
            self.deaf = true;
        }
        self.next_heap()
    }

    /// Tells whether something may have been missed.
    fn hear_again(&mut self) -> Result<bool, NoWatch> {
        let deaf = std::mem::take(&mut self.deaf);
        if deaf {
            self.watch.get_mut().listen()?;
        }
        Ok(deaf)
    }

    pub(super) fn after_write(&mut self, transactions: u32) -> Result<bool, NoWatch> {
        let before = self.generation.take();
        let missed = self.hear_again()?;
        let heap = self.take()?;
        if !missed && !heap.lost && !heap.ours {
            return Ok(false);
        }
        // A large write of ours is itself more than the socket holds.
        let now = generation().ok();
        let others = match (before, now) {
            (Some(before), Some(now)) => now.wrapping_sub(before) != transactions,
            _ => true,
        };
        Ok(others)
    }

    /// Waits for something, and tells whether it concerns us.
    pub(super) async fn next(&mut self) -> Result<bool, NoWatch> {
        sleep_until(self.not_before).await;
        self.watch.readable_mut().await?.clear_ready();
        self.not_before = Instant::now() + APART;
        self.next_heap()
    }

    fn next_heap(&mut self) -> Result<bool, NoWatch> {
        let heap = self.take()?;
        Ok(heap.ours || heap.lost)
    }

    fn take(&mut self) -> Result<Heap, FirewallError> {
        let (families, mut heap) = (self.families, Heap::default());
        self.watch.get_mut().hear(|heard| match heard {
            Heard::Lost => heap.lost = true,
            Heard::Transaction => {}
            Heard::Change(change) => {
                let is_in = |family| {
                    let mut tables = TABLES.iter();
                    tables.any(|table| change.is_in(wire(family), table))
                };
                heap.ours |= families.iter().any(|family| is_in(*family))
                    && (change.is_table() || change.names(PREFIX));
            }
        })?;
        Ok(heap)
    }
}

fn generation() -> Result<u32, FirewallError> {
    Firewall::open()?.generation()
}

fn wire(family: Family) -> seaway_firewall::Family {
    match family {
        Family::V4 => seaway_firewall::Family::V4,
        Family::V6 => seaway_firewall::Family::V6,
    }
}

#[expect(
    deprecated,
    reason = "its successor wants unsafe; the watch opens one descriptor and keeps it"
)]
fn registered(watch: seaway_firewall::Watch) -> std::io::Result<AsyncFd<seaway_firewall::Watch>> {
    AsyncFd::with_interest(watch, Interest::READABLE)
}
