//! What a sweep says of itself.

use std::net::IpAddr;

use serde::Serialize;

use crate::ipam::Key;
use crate::upkeep::Report;

/// What was done.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Swept {
    /// Attachments whose records, ports and addresses were released.
    pub(super) released: Vec<Released>,
    /// Interfaces without a record that were removed.
    pub(super) removed_links: Vec<String>,
    /// Pods that nobody knows, whose ports of the host were closed.
    pub(super) closed_host_ports: Vec<IpAddr>,
    /// Seen for the first time, or not long enough.
    pub(super) waiting: usize,
    /// Interfaces without a record that are alive.
    pub(super) alive_without_record: Vec<String>,
    /// Boots whose records were purged.
    pub(super) purged_boots: usize,
    /// What could not be done as it should be, and why.
    pub(super) skipped: Vec<String>,
    pub(super) failures: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Released {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) addresses: Vec<IpAddr>,
}

impl Report for Swept {
    fn failed(&self) -> bool {
        !self.failures.is_empty()
    }
}

impl Swept {
    /// Adds what was done in another network.
    pub(super) fn add(&mut self, other: Self) {
        self.released.extend(other.released);
        self.removed_links.extend(other.removed_links);
        self.closed_host_ports.extend(other.closed_host_ports);
        self.waiting += other.waiting;
        self.alive_without_record.extend(other.alive_without_record);
        self.purged_boots += other.purged_boots;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }
}
