//! The address families of a cluster, and every address that follows from them.

/// Which addresses nodes, pods and Services have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Families {
    /// IPv4 only
    #[default]
    V4,
    /// IPv6 only
    V6,
    /// Both, IPv4 first
    Dual,
}

/// The addresses of one family.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where the API server, DNS and the registry listen, as the nodes see it.
    pub(super) control: &'static str,
    /// What all addresses on the nodes' link begin with.
    link: &'static str,
    /// And how long that is, with its slash.
    pub(super) link_length: &'static str,
    /// The pods' addresses; each node gets a part of it.
    cluster_cidr: &'static str,
    /// The Services' addresses.
    service_cidr: &'static str,
    /// The API server's Service.
    first_service: &'static str,
    /// The cluster's DNS Service.
    dns: &'static str,
    /// The destination of a default route.
    pub(super) everything: &'static str,
    /// As EndpointSlices call it.
    address_type: &'static str,
}

const V4: Plan = Plan {
    control: "172.30.0.1",
    link: "172.30.0.",
    link_length: "/24",
    cluster_cidr: "10.244.0.0/16",
    service_cidr: "10.96.0.0/16",
    first_service: "10.96.0.1",
    dns: "10.96.0.10",
    everything: "0.0.0.0/0",
    address_type: "IPv4",
};

const V6: Plan = Plan {
    control: "fd00:30::1",
    link: "fd00:30::",
    link_length: "/64",
    // The controller manager cuts /64s from it.
    cluster_cidr: "fd00:244::/56",
    service_cidr: "fd00:96::/112",
    first_service: "fd00:96::1",
    dns: "fd00:96::a",
    everything: "::/0",
    address_type: "IPv6",
};

/// Before the index of a node, in its own addresses.
const NODES: usize = 11;
/// And in those that it may change to.
const SPARE: usize = 61;

impl Families {
    /// The plans of each family, the primary one first.
    pub(super) fn plans(self) -> &'static [Plan] {
        match self {
            Self::V4 => &[V4],
            Self::V6 => &[V6],
            Self::Dual => &[V4, V6],
        }
    }

    fn primary(self) -> &'static Plan {
        self.plans().first().expect("no family has no plan")
    }

    fn joined(self, pick: impl Fn(&Plan) -> &'static str) -> String {
        let picked: Vec<&str> = self.plans().iter().map(pick).collect();
        picked.join(",")
    }

    /// The control plane's address.
    #[must_use]
    pub fn control_ip(self) -> &'static str {
        self.primary().control
    }

    /// The control plane's address of each family.
    pub fn control_ips(self) -> impl Iterator<Item = &'static str> {
        self.plans().iter().map(|plan| plan.control)
    }

    /// The cluster's DNS Service.
    pub(super) fn dns_ip(self) -> &'static str {
        self.primary().dns
    }

    /// The kind of EndpointSlices with addresses of the primary family.
    pub(super) fn address_type(self) -> &'static str {
        self.primary().address_type
    }

    /// The pods' ranges, as flags want them.
    #[must_use]
    pub fn cluster_cidrs(self) -> String {
        self.joined(|plan| plan.cluster_cidr)
    }

    /// The Services' ranges, as flags want them.
    pub(super) fn service_cidrs(self) -> String {
        self.joined(|plan| plan.service_cidr)
    }

    /// What the API server is asked by.
    pub(super) fn api_addresses(self) -> impl Iterator<Item = &'static str> {
        let plans = self.plans().iter();
        plans.flat_map(|plan| [plan.control, plan.first_service])
    }

    /// The addresses of the node of that index.
    pub(super) fn node_ips(self, index: usize) -> Vec<String> {
        self.link_ips(NODES + index)
    }

    /// Other addresses for the node of that index, which nobody has yet.
    #[must_use]
    pub fn spare_ips(self, index: usize) -> Vec<String> {
        self.link_ips(SPARE + index)
    }

    fn link_ips(self, number: usize) -> Vec<String> {
        let plans = self.plans().iter();
        plans.map(|plan| format!("{}{number}", plan.link)).collect()
    }
}

/// An address and a port as in a URL: `10.0.0.1:80`, `[fd00::1]:80`.
#[must_use]
pub fn host_port(ip: &str, port: u16) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clusters_addresses_are_in_the_order_of_its_families() {
        let rows = [
            (Families::V4, "10.244.0.0/16", vec!["172.30.0.11"]),
            (Families::V6, "fd00:244::/56", vec!["fd00:30::11"]),
            (
                Families::Dual,
                "10.244.0.0/16,fd00:244::/56",
                vec!["172.30.0.11", "fd00:30::11"],
            ),
        ];
        for (families, cidrs, ips) in rows {
            assert_eq!(families.cluster_cidrs(), cidrs);
            assert_eq!(families.node_ips(0), ips);
        }
    }

    #[test]
    fn addresses_in_urls_are_told_from_their_ports() {
        assert_eq!(host_port("10.0.0.1", 80), "10.0.0.1:80");
        assert_eq!(host_port("fd00::1", 80), "[fd00::1]:80");
    }
}
