//! What flags say that may well be a mistake: no reason not to start, but to be told then,
//! since it shows later and elsewhere.

use ipnetwork::IpNetwork;
use nix::net::if_::{if_nameindex, if_nametoindex};

use super::{RunArgs, Switch};
use crate::config::{POD_INTERFACES, ServiceProxy, is_pod_interface};

impl RunArgs {
    /// What this node does not have yet, and what looks odd. Looks at the calling thread's
    /// network namespace and at files.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for (first, second) in overlapping(&self.cluster_cidr) {
            doubts.push(format!("--cluster-cidr: {first} and {second} overlap"));
        }
        if self.service_proxy == ServiceProxy::Ebpf && self.services.masquerade_all {
            doubts.push(
                "--masquerade-all (or iptables.masqueradeAll of --config): \
                 no effect with --service-proxy=ebpf, which masquerades nobody"
                    .to_owned(),
            );
        }
        if self.pod_network == Switch::Off {
            return doubts;
        }
        let links = if_nameindex().into_iter().flat_map(|links| {
            let names = links
                .iter()
                .map(|l| l.name().to_string_lossy().into_owned());
            strangers(names.collect())
        });
        doubts.extend(links.map(|link| {
            format!(
                "link {link}: what comes through it is taken for a pod's, whose links begin \
                 with {POD_INTERFACES}, too; rename it, or set --detect-local-mode"
            )
        }));
        if let Some(name) = &self.network.uplink
            && if_nametoindex(name.as_str()).is_err()
        {
            doubts.push(format!("--uplink {name}: there is no such link"));
        }
        if let Some(path) = self.upkeep.cni_bin.as_ref().filter(|path| !path.is_file()) {
            doubts.push(format!(
                "--cni-bin {}: there is no such file",
                path.display()
            ));
        }
        doubts
    }
}

/// Links that rules take for pods' by the beginning of their names. iptables knows no other
/// pattern.
pub(super) fn strangers(mut links: Vec<String>) -> Vec<String> {
    links.retain(|name| name.starts_with(POD_INTERFACES) && !is_pod_interface(name));
    links
}

fn overlapping(cidrs: &[IpNetwork]) -> Vec<(IpNetwork, IpNetwork)> {
    let overlap = |a: &IpNetwork, b: &IpNetwork| a.contains(b.network()) || b.contains(a.network());
    let mut found = Vec::new();
    for (place, first) in cidrs.iter().enumerate() {
        let later = cidrs.iter().skip(place + 1);
        let pairs = later.filter(|second| overlap(first, second));
        found.extend(pairs.map(|second| (*first, *second)));
    }
    found
}
