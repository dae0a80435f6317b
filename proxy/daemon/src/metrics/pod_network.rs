//! What is measured of the pod network.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use seaway_podnet::{Changes, Desired, Path};

/// Handles are shared, so clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodNetworkMetrics {
    peer_routes: Family<ByPath, Gauge>,
    skipped_peers: Gauge,
    repairs: Counter,
    pub(crate) failures: Counter,
    pub(crate) probe_failures: Counter,
    foreign_confs: Gauge,
    foreign_conf_first: Gauge,
    foreign_drops: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPath {
    path: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Kind {
    #[expect(non_camel_case_types, reason = "as it is encoded")]
    direct,
    #[expect(non_camel_case_types, reason = "as it is encoded")]
    vxlan,
}

impl PodNetworkMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "pod_network_peer_routes",
            "Routes to other nodes' podCIDRs, by the kind of path",
            self.peer_routes.clone(),
        );
        registry.register(
            "pod_network_skipped_peers",
            "Nodes, or podCIDRs of nodes, that got no route",
            self.skipped_peers.clone(),
        );
        registry.register(
            "pod_network_sync_failures",
            "Rounds in which something of the pod network could not be programmed",
            self.failures.clone(),
        );
        registry.register(
            "pod_network_repairs",
            "Rounds that found something changed or removed by somebody else",
            self.repairs.clone(),
        );
        registry.register(
            "pod_network_probe_failures",
            "Probes of direct paths without an answer",
            self.probe_failures.clone(),
        );
        registry.register(
            "pod_network_foreign_confs",
            "Other networks' CNI confs in the folder of ours",
            self.foreign_confs.clone(),
        );
        registry.register(
            "pod_network_foreign_conf_first",
            "1 if the container runtime takes another network's CNI conf and not ours",
            self.foreign_conf_first.clone(),
        );
        registry.register(
            "pod_network_foreign_drop_chains",
            "Other firewalls' nftables chains that drop forwarded packets at their end",
            self.foreign_drops.clone(),
        );
    }

    /// What the nodes ask for.
    pub(crate) fn wanted(&self, want: &Desired) {
        let all = want.routes().count();
        let direct = want
            .routes()
            .filter(|(_, to)| matches!(to.path, Path::Direct { .. }));
        let direct = direct.count();
        for (path, n) in [(Kind::direct, direct), (Kind::vxlan, all - direct)] {
            self.peer_routes
                .get_or_create(&ByPath { path })
                .set(count(n));
        }
        self.skipped_peers.set(count(want.skipped.len()));
    }

    /// Other networks' confs, and whether one of them comes before ours.
    pub(crate) fn foreign_confs(&self, number: usize, first: bool) {
        self.foreign_confs.set(count(number));
        self.foreign_conf_first.set(i64::from(first));
    }

    /// Other firewalls' chains that drop what nobody has accepted in them.
    pub(crate) fn foreign_drops(&self, number: usize) {
        self.foreign_drops.set(count(number));
    }

    /// A round that had nothing new to do did this.
    pub(crate) fn repaired(&self, changes: &Changes) {
        if changes.any() {
            self.repairs.inc();
        }
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
