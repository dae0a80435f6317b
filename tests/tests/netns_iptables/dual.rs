//! IPv6 beside IPv4: a [`Node`] whose members have the addresses, too, that [`in_v6`] makes
//! of those that they have.

use std::net::Ipv6Addr;

use seaway_proxy_core::desired::{DesiredState, FrontendKind, LocalSources};
use seaway_proxy_iptables::Flavour;
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, XTABLES_WAIT};

use crate::node::{Node, config, in_v6};

/// [`VIP`](crate::node::VIP).
pub(crate) const VIP_V6: &str = "[fd00:a:60::a]:80";
/// The node, beyond its uplink.
pub(crate) const NODE_V6: &str = "fd00:c0:a8::3c:0:1";
/// [`OUTSIDE`](crate::node::OUTSIDE).
pub(crate) const OUTSIDE_V6: &str = "fd00:c0:a8::3c:0:2";

/// A node of both families, and what answers datagrams at its pods' addresses of IPv6.
pub(crate) fn node(flavour: Flavour) -> (Node, Vec<Server>) {
    let n = Node::new(config(flavour));
    n.host.sysctl("ipv6/conf/all/forwarding", "1");
    // One client is refused more often here than the kernel says so otherwise.
    n.host.sysctl("ipv6/icmp/ratelimit", "0");
    for (i, pod) in [(0, &n.pods[0]), (1, &n.pods[1]), (9, &n.client)] {
        join(
            &n.host,
            &format!("pod{i}"),
            pod,
            &format!("fd00:a:f4:0:0:{i}:0"),
        );
        pod.ip(&format!("-6 route add default via fd00:a:f4:0:0:{i}:0:1"));
    }
    join(&n.host, "uplink", &n.outside, "fd00:c0:a8:0:0:3c:0");
    n.host.ip(&format!("-6 route add default via {OUTSIDE_V6}"));
    let to_node = format!("-6 route add fd00::/16 via {NODE_V6}");
    n.outside.ip(&to_node);
    let serve = |(i, pod): (usize, &Netns)| {
        let address = format!("[fd00:a:f4:0:0:{i}:0:2]:8080");
        pod.serve(Protocol::Udp, &address, &format!("pod{i}"))
    };
    let servers = n.pods.iter().enumerate().map(serve).collect();
    (n, servers)
}

/// The network's addresses 1 and 2, for the ends of a link that is up.
fn join(node: &Netns, ifname: &str, other: &Netns, network: &str) {
    for (netns, ifname, number) in [(node, ifname, 1), (other, "eth0", 2)] {
        // Whoever forwards looks for neighbours with such an address, and the one that the
        // kernel gives the link is not used before it has been tried for a second.
        netns.ip(&format!("addr add fe80::{number}/64 dev {ifname} nodad"));
        netns.ip(&format!(
            "addr add {network}:{number}/112 dev {ifname} nodad"
        ));
    }
}

/// The Services of IPv4 in both families.
pub(crate) fn both(mut desired: DesiredState) -> DesiredState {
    desired.v6 = in_v6(&desired.v4);
    desired.v6.local_sources = match &desired.v4.local_sources {
        LocalSources::Networks(_) => {
            LocalSources::Networks(vec!["fd00:a:f4::/48".parse().unwrap()])
        }
        other => other.clone(),
    };
    let ports = desired.v6.services.values_mut();
    for frontend in ports.flat_map(|port| &mut port.frontends) {
        if frontend.kind == FrontendKind::NodePort {
            frontend.addr = Ipv6Addr::UNSPECIFIED.into();
        }
    }
    desired
}

/// Loads rules of somebody else, for which the kernel begins to track.
pub(crate) fn track(n: &Node) {
    for (program, others) in [
        ("iptables", "172.17.0.0/16"),
        ("ip6tables", "fd00:172::/64"),
    ] {
        let rules = format!(
            "*nat\n-A POSTROUTING -s {others} -j MASQUERADE\nCOMMIT\n\
             *filter\n-A FORWARD -m conntrack --ctstate INVALID -s {others} -j DROP\nCOMMIT"
        );
        let restore = format!("{program}-{}-restore {XTABLES_WAIT} --noflush", n.flavour);
        let script = format!("{restore} <<'END'\n{rules}\nEND");
        n.host.must_run(&["sh", "-c", &script]);
    }
}

/// conntrack's entries of `protocol`, of both families, that have one of `parts` in them.
pub(crate) fn entries(n: &Node, protocol: &str, parts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let words = ["conntrack", "-L", "-f", family, "-p", protocol, "-o", "id"];
        let table = n.host.must_run(&words);
        let wanted = |line: &&str| parts.iter().any(|part| line.contains(part));
        found.extend(table.lines().filter(wanted).map(str::to_owned));
    }
    found
}
