//! A node of both families, with Services in both: pods 10.244.0.N and fd00:244::N, which are
//! on the node itself.

use serde_json::{Value, json};

use crate::node::{API, Node};
use crate::pair::api_node;
use seaway_testbed::XTABLES_WAIT;
use seaway_testbed::fake_api::{FakeApi, NODES};

/// Of the daemon, where somebody else's CNI runs.
pub(crate) const FLAGS: [&str; 4] = [
    "--cluster-cidr",
    "10.244.0.0/16,fd00:244::/48",
    "--pod-network",
    "off",
];

/// One that uses this flavour of iptables; only pod 5 is there.
pub(crate) fn node(flavour: &str) -> Node {
    let node = Node::new();
    // By this chain a kubelet tells which flavour it uses.
    let hint = format!("iptables-{flavour} {XTABLES_WAIT} -t mangle -N KUBE-IPTABLES-HINT");
    node.netns.must_run(&["sh", "-c", &hint]);
    node.netns.ip("addr add fd00:30::11/64 dev eth0 nodad");
    node.netns.ip("addr add fd00:244::5/128 dev lo nodad");
    node.netns.ip("-6 route add default dev eth0");
    node
}

/// Which knows the node alone.
pub(crate) fn api(node: &Node) -> FakeApi {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    let ips = ["172.30.0.11", "fd00:30::11"];
    api.apply(
        NODES,
        api_node("a", &ips, &["10.244.0.0/24", "fd00:244::/64"]),
    );
    api
}

/// At an address of either family.
pub(crate) fn service(name: &str, ips: [&str; 2]) -> Value {
    let mut service = crate::service(name, ips[0]);
    service["spec"]["clusterIPs"] = json!(ips);
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    service
}

/// One of each family; `endpoints` has the beginning of its pods' addresses.
pub(crate) fn slices(service: &str, endpoints: impl Fn(&str) -> Value) -> [Value; 2] {
    [("IPv4", "10.244.0."), ("IPv6", "fd00:244::")].map(|(family, pods)| {
        let mut slice = crate::slice(service, "");
        slice["metadata"]["name"] = json!(format!("{service}-{}", family.to_lowercase()));
        slice["addressType"] = json!(family);
        slice["endpoints"] = endpoints(pods);
        slice
    })
}

/// What `{program}-save` shows of ours in both families.
pub(crate) fn rules(node: &Node, flavour: &str) -> Vec<String> {
    let dumps = ["iptables", "ip6tables"].map(|program| {
        let save = format!("{program}-{flavour}-save");
        node.netns.must_run(&[save])
    });
    let lines = dumps.iter().flat_map(|dump| dump.lines());
    let ours = lines.filter(|line| line.starts_with("-A") && line.contains("SEAWAY-"));
    let mut ours: Vec<String> = ours.map(str::to_owned).collect();
    ours.sort();
    ours
}
