//! Log lines about the pod network: each state is told once.

use std::collections::{BTreeMap, BTreeSet};

use seaway_podnet::{
    Changes, Desired, Family, IpNetwork, Path, PodNetworkError, PodRoutes, Settings, Skip, Uplink,
    Waiting,
};
use tracing::{debug, info, warn};

use crate::chain::Chain;

#[cfg(test)]
mod tests;

/// Names in one line, and lines about failures of one round; the rest is counted.
const NAMES: usize = 5;
/// What IPv6 needs of every link (RFC 8200, section 5).
const MIN_MTU_V6: u32 = 1280;

/// What has been said already.
#[derive(Debug, Default)]
pub(super) struct Said {
    waiting: Option<Waiting>,
    skips: BTreeSet<Skip>,
    out_of_reach: BTreeSet<Skip>,
    failures: BTreeSet<String>,
    failure: Option<String>,
    outside: Vec<IpNetwork>,
    uplink: Option<(String, u32, u32)>,
    direct: Option<BTreeMap<String, bool>>,
}

impl Said {
    pub(super) fn waiting(&mut self, waiting: Waiting) {
        if self.waiting.as_ref() != Some(&waiting) {
            info!(reason = %waiting, "Waiting for this node's pod addresses");
            self.waiting = Some(waiting);
        }
    }

    /// What is new in `want`.
    pub(super) fn wanted(&mut self, want: &Desired, settings: &Settings) {
        self.waiting = None;
        skips(&mut self.skips, &want.skipped);
        self.outside(outside(&want.pod_cidrs, &settings.cluster_cidrs));
        if settings.mode == PodRoutes::Auto {
            self.paths(paths(want));
        }
    }

    fn outside(&mut self, now: Vec<IpNetwork>) {
        for cidr in now.iter().filter(|cidr| !self.outside.contains(cidr)) {
            warn!(
                %cidr,
                "This node's podCIDR is in none of --cluster-cidr, so other nodes' pods see masqueraded addresses"
            );
        }
        self.outside = now;
    }

    fn paths(&mut self, now: BTreeMap<String, bool>) {
        if let Some(before) = &self.direct {
            let (direct, overlay) = turned(before, &now);
            if !direct.is_empty() {
                info!(
                    paths = names(&direct),
                    "Pod addresses pass without the overlay"
                );
            }
            if !overlay.is_empty() {
                warn!(
                    paths = names(&overlay),
                    "Pod addresses do not pass any more, using the overlay"
                );
            }
        }
        self.direct = Some(now);
    }

    /// The way out, and what fits through.
    pub(super) fn uplink(&mut self, uplink: &Uplink, pod_mtu: u32, want: &Desired) {
        let now = (uplink.link.name.clone(), uplink.mtu, pod_mtu);
        if self.uplink.as_ref() == Some(&now) {
            return;
        }
        let (name, mtu) = (&uplink.link.name, uplink.mtu);
        info!(uplink = name, reason = %uplink.by, mtu, pod_mtu, "Found the uplink");
        if pod_mtu > mtu {
            warn!(
                uplink = name,
                mtu, pod_mtu, "--mtu is more than the uplink takes"
            );
        }
        if pod_mtu < MIN_MTU_V6 && want.pod_cidrs.iter().any(IpNetwork::is_ipv6) {
            warn!(pod_mtu, "IPv6 needs an MTU of 1280, pods will not start");
        }
        self.uplink = Some(now);
    }

    /// What concerns all pods of the node, if something does.
    pub(super) fn failed(&mut self, now: Option<&String>) {
        match now {
            Some(error) if self.failure.as_ref() != Some(error) => {
                warn!(%error, "Cannot program the pod network, trying again");
            }
            Some(error) => debug!(%error, "Still cannot program the pod network"),
            None if self.failure.is_some() => info!("Can program the pod network again"),
            None => {}
        }
        self.failure = now.cloned();
    }

    /// What a round did; `drift` if it had nothing new to do, so that somebody else was
    /// at it.
    pub(super) fn changed(&mut self, changes: &Changes, drift: bool) {
        skips(&mut self.out_of_reach, &changes.skipped);
        let news = failures(&mut self.failures, &changes.failed);
        let (named, rest) = news.split_at(news.len().min(NAMES));
        for error in named {
            warn!(%error, "Cannot program a part of the pod network, trying again");
        }
        if !rest.is_empty() {
            let more = rest.len();
            warn!(
                more,
                "Cannot program other parts of the pod network either, trying again"
            );
        }
        let (replaced, removed, node) = (changes.replaced, changes.removed, changes.node);
        match (replaced + removed > 0 || node, drift) {
            (true, false) => info!(replaced, removed, node, "Programmed the pod network"),
            (true, true) => warn!(
                replaced,
                removed, node, "Somebody changed the pod network, repaired it"
            ),
            (false, _) => debug!("The pod network is as it should be"),
        }
    }
}

/// Tells of those that have not been told of.
fn skips(told: &mut BTreeSet<Skip>, skipped: &[Skip]) {
    let now: BTreeSet<Skip> = skipped.iter().cloned().collect();
    for Skip { node, reason } in now.difference(told) {
        warn!(node, %reason, "Skipped a node in the pod network");
    }
    *told = now;
}

/// Those that have not been told of, with their causes.
fn failures(told: &mut BTreeSet<String>, failed: &[PodNetworkError]) -> Vec<String> {
    let line = |error: &PodNetworkError| (tried(error), Chain(error).to_string());
    let now: BTreeMap<String, String> = failed.iter().map(line).collect();
    let news = now.iter().filter(|(tried, _)| !told.contains(*tried));
    let news = news.map(|(_, error)| error.clone()).collect();
    *told = now.into_keys().collect();
    news
}

/// What a failure is known by: what was tried on which object. Its cause may be another one with
/// each round.
fn tried(error: &PodNetworkError) -> String {
    match error {
        PodNetworkError::Routes { source } => source.to_string(),
        other => other.to_string(),
    }
}

/// The own ranges that are in none of the cluster's.
fn outside(own: &[IpNetwork], cluster: &[IpNetwork]) -> Vec<IpNetwork> {
    let inside = |cidr: &IpNetwork| {
        let within = |all: &&IpNetwork| all.contains(cidr.ip()) && all.prefix() <= cidr.prefix();
        cluster.iter().any(|all| within(&all))
    };
    own.iter().copied().filter(|cidr| !inside(cidr)).collect()
}

/// Whether each peer is reached directly, by name and family.
fn paths(want: &Desired) -> BTreeMap<String, bool> {
    let mut paths = BTreeMap::new();
    for (name, peer) in &want.peers {
        for to in &peer.cidrs {
            let family = match Family::of(to.reserved) {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            };
            let direct = matches!(to.path, Path::Direct { .. });
            paths.insert(format!("{name}/{family}"), direct);
        }
    }
    paths
}

/// The paths that are direct now, and those that are no more.
fn turned<'a>(
    before: &BTreeMap<String, bool>,
    now: &'a BTreeMap<String, bool>,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let was = |path: &str| before.get(path).copied();
    let (mut direct, mut overlay) = (Vec::new(), Vec::new());
    for (path, is) in now {
        match (was(path), *is) {
            (None | Some(false), true) => direct.push(path.as_str()),
            (Some(true), false) => overlay.push(path.as_str()),
            _ => {}
        }
    }
    (direct, overlay)
}

/// The first few, and how many more.
fn names(all: &[&str]) -> String {
    let (first, rest) = all.split_at(all.len().min(NAMES));
    let first = first.join(", ");
    match rest.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
