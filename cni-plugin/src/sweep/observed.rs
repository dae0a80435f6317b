//! What earlier sweeps have seen, in a file beside the records.

use std::net::IpAddr;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use seaway_netlink::Link;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ipam::{Key, Record, Store};

/// Tells the file from anybody else's, and from other versions' of it.
const MARK: &str = "seaway-cni sweep 1";

/// Something that looked dead, with what makes it this one and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Thing {
    #[serde(rename_all = "camelCase")]
    Record {
        #[serde(flatten)]
        key: Key,
        netns_id: Option<(u64, u64)>,
    },
    Link {
        name: String,
        index: u32,
    },
    Ports {
        pod: IpAddr,
    },
}

impl Thing {
    pub(super) fn record(key: &Key, record: Option<&Record>) -> Self {
        Self::Record {
            key: key.clone(),
            netns_id: record.map(|record| record.netns_id),
        }
    }

    pub(super) fn link(link: &Link) -> Self {
        Self::Link {
            name: link.name.clone(),
            index: link.index.0,
        }
    }
}

/// All things of one sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Observations {
    mark: String,
    boot_id: String,
    seen: Vec<Seen>,
    #[serde(skip)]
    now: u64,
    #[serde(skip)]
    apart: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    thing: Thing,
    /// When it was first, in milliseconds since the boot.
    since: u64,
}

impl Observations {
    /// Those of the last sweep; a file that is damaged or somebody else's has
    /// none.
    pub(super) fn read(store: &Store) -> Self {
        let none = Self {
            mark: MARK.to_owned(),
            boot_id: store.boot_id().to_owned(),
            seen: Vec::new(),
            now: 0,
            apart: 0,
        };
        let read: Option<Self> = serde_json::from_slice(&store.observations()).ok();
        read.filter(|read| (&read.mark, &read.boot_id) == (&none.mark, &none.boot_id))
            .unwrap_or(none)
    }

    /// Those of a new sweep, none yet.
    pub(super) fn begin(&self, apart: Duration) -> Result<Self, Error> {
        // Counts on while the machine sleeps, and nobody can set it.
        let clock = ClockId::CLOCK_BOOTTIME;
        let now = clock_gettime(clock).map_err(|errno| Error::File {
            op: "read the clock",
            path: "CLOCK_BOOTTIME".into(),
            source: errno.into(),
        })?;
        Ok(self.at(Duration::from(now), apart))
    }

    fn at(&self, now: Duration, apart: Duration) -> Self {
        Self {
            seen: Vec::new(),
            now: milliseconds(now),
            apart: milliseconds(apart),
            ..self.clone()
        }
    }

    /// Notes the thing; tells whether it has been seen before, long enough ago.
    pub(super) fn ripe(&mut self, before: &Self, thing: &Thing) -> bool {
        let first = before.seen.iter().find(|seen| seen.thing == *thing);
        let since = first.map_or(self.now, |seen| seen.since);
        self.seen.push(Seen {
            thing: thing.clone(),
            since,
        });
        first.is_some() && self.now.saturating_sub(since) >= self.apart
    }

    /// The thing is gone.
    pub(super) fn forget(&mut self, thing: &Thing) {
        self.seen.retain(|seen| seen.thing != *thing);
    }

    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    pub(super) fn write(&self, store: &Store) -> Result<(), Error> {
        if self.seen.is_empty() {
            return Ok(store.observe(None)?);
        }
        let text = serde_json::to_vec(self).expect("all keys are text");
        Ok(store.observe(Some(&text))?)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(n: u64) -> Thing {
        Thing::Record {
            key: Key {
                container_id: "c".into(),
                ifname: "eth0".into(),
            },
            netns_id: Some((4, n)),
        }
    }

    #[test]
    fn a_thing_is_ripe_when_it_is_seen_again_and_time_has_passed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::of_boot(dir.path(), "seaway", "boot-1");
        store.create().unwrap();
        let at = |seconds, things: &[u64]| {
            let before = Observations::read(&store);
            let mut now = before.at(Duration::from_secs(seconds), Duration::from_secs(5));
            let ripe: Vec<bool> = things
                .iter()
                .map(|n| now.ripe(&before, &thing(*n)))
                .collect();
            now.write(&store).unwrap();
            ripe
        };
        assert_eq!(at(100, &[1]), [false]);
        assert_eq!(at(104, &[1, 2]), [false, false]);
        assert_eq!(at(105, &[1, 2]), [true, false]);
        // What was not seen in between begins anew.
        assert_eq!(at(106, &[2]), [false]);
        assert_eq!(at(110, &[1, 2]), [false, true]);
        assert_eq!(at(111, &[]), [false; 0]);
        assert!(!dir.path().join("seaway/sweep.json").exists());
    }

    #[test]
    fn case_50_files_that_are_not_ours_have_seen_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::of_boot(dir.path(), "seaway", "boot-1");
        store.create().unwrap();
        let mut mine = Observations::read(&store);
        mine.ripe(&mine.clone(), &thing(1));
        mine.write(&store).unwrap();
        assert_eq!(Observations::read(&store).len(), 1);
        let other = Store::of_boot(dir.path(), "seaway", "boot-2");
        assert_eq!(Observations::read(&other).len(), 0);
        for garbage in ["", "{", "[]", r#"{"mark":"x","bootId":"boot-1","seen":[]}"#] {
            store.observe(Some(garbage.as_bytes())).unwrap();
            assert_eq!(Observations::read(&store).len(), 0, "{garbage}");
        }
    }
}
