//! Looks at iptables-legacy's tables now and then.
//!
//! The shape of a table shows every rule that was added or removed, also others',
//! and where the built-in chains begin. A rule that was replaced by one of the same
//! size shows only in a digest of all rules, which is made as seldom as its cost
//! demands.

use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use seaway_netlink::{NetlinkError, Shape, Xtables};
use seaway_proxy_core::desired::Family;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::{LOOK, NoWatch, TABLES};

/// A digest takes at most this share of a processor's time: 0.05 %.
const DIGEST_SHARE: u32 = 2000;

#[derive(Debug)]
pub(super) struct Ear {
    tables: Arc<Vec<(Family, Xtables)>>,
    known: Vec<Option<Seen>>,
    look_at: Instant,
    digest_at: Instant,
}

/// A table; `None` where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    shape: Shape,
    digest: Option<u64>,
}

impl Ear {
    pub(super) fn open(families: &'static [Family]) -> Result<Self, NetlinkError> {
        let tables = families.iter().map(|&family| {
            let opened = Xtables::open(match family {
                Family::V4 => seaway_netlink::Family::V4,
                Family::V6 => seaway_netlink::Family::V6,
            });
            opened.map(|tables| (family, tables))
        });
        let now = Instant::now();
        Ok(Self {
            tables: Arc::new(tables.collect::<Result<_, _>>()?),
            known: Vec::new(),
            look_at: now,
            digest_at: now,
        })
    }

    /// Takes what there is now as known.
    pub(super) async fn forget(&mut self) -> Result<(), NoWatch> {
        self.known = self.see(true).await?;
        Ok(())
    }

    /// Takes what there is now as known, and tells whether it is something else than what was
    /// known and what we have added: others write while ours waits for the lock.
    pub(super) async fn after_write(&mut self, grown: Option<&[i64]>) -> Result<bool, NoWatch> {
        let now = self.see(true).await?;
        let before = std::mem::replace(&mut self.known, now);
        let entries = |seen: &Option<Seen>| seen.as_ref().map(|s| i64::from(s.shape.entries()));
        let tables = before
            .iter()
            .zip(&self.known)
            .zip(grown.unwrap_or_default());
        let mut pairs = tables.filter_map(|((before, now), grown)| {
            // A table that has just come into being has entries of its own.
            Some((entries(before)? + grown, entries(now).unwrap_or_default()))
        });
        Ok(pairs.any(|(expected, found)| expected != found))
    }

    /// Whether a shape is not the known one.
    pub(super) fn differs(&self) -> bool {
        let shapes = self
            .known
            .iter()
            .map(|seen| seen.as_ref().map(|s| &s.shape));
        let now = see(&self.tables, false);
        !shapes.eq(now.iter().map(|seen| seen.as_ref().map(|s| &s.shape)))
    }

    /// Waits for the next look, and tells what it shows.
    pub(super) async fn next(&mut self) -> Result<bool, NoWatch> {
        sleep_until(self.look_at).await;
        self.look_at = Instant::now() + LOOK;
        if self.differs() {
            return Ok(true);
        }
        if Instant::now() < self.digest_at {
            return Ok(false);
        }
        let now = self.see(true).await?;
        Ok(now != self.known)
    }

    async fn see(&mut self, digest: bool) -> Result<Vec<Option<Seen>>, NoWatch> {
        let tables = self.tables.clone();
        let looking = spawn_blocking(move || -> std::io::Result<_> {
            let started = spent()?;
            let seen = see(&tables, digest);
            Ok((seen, spent()?.saturating_sub(started)))
        });
        let (seen, cost) = looking.await.map_err(std::io::Error::other)??;
        self.digest_at = Instant::now() + (cost * DIGEST_SHARE).max(LOOK / 2);
        Ok(seen)
    }
}

/// Processor time of this thread: on a busy node the next digest is not to be later.
fn spent() -> std::io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

fn see(tables: &[(Family, Xtables)], digest: bool) -> Vec<Option<Seen>> {
    let each = tables
        .iter()
        .flat_map(|(family, tables)| TABLES.map(|table| see_one(*family, tables, table, digest)));
    each.collect()
}

fn see_one(family: Family, tables: &Xtables, table: &str, digest: bool) -> Option<Seen> {
    // To be asked for it would bring it into being.
    if !exists(family, table) {
        return None;
    }
    let shape = tables.shape(table).ok()?;
    // It may have changed since, which the next shape shows.
    let digest = digest.then(|| tables.digest(table, &shape).ok()).flatten();
    Some(Seen { shape, digest })
}

fn exists(family: Family, table: &str) -> bool {
    let file = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    std::fs::read_to_string(file).is_ok_and(|names| names.lines().any(|name| name == table))
}
