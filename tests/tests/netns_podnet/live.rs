//! Changes while traffic flows.

use seaway_podnet::{Family, PodRoutes};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::net::{Net, Stack, at, pod_ip};
use crate::traffic::Stream;

#[test]
fn a_path_changes_to_and_fro_without_a_packet_lost() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Auto, Stack::Dual, Stack::Dual);
    for node in &net.nodes {
        // Each node decides for itself, so packets come where others do not leave.
        node.netns.sysctl("ipv4/conf/all/rp_filter", "1");
        node.netns.sysctl("ipv4/conf/eth0/rp_filter", "1");
    }
    net.apply_all();
    let mut servers = Vec::new();
    let mut streams = Vec::new();
    for family in [Family::V4, Family::V6] {
        let address = at(&pod_ip(1, family, 5), 53);
        servers.push(net.nodes[1].pod.serve(Protocol::Udp, &address, "b"));
        streams.push(Stream::start(&net.nodes[0].pod, &address));
    }
    for round in 0..20 {
        let direct = round % 2 == 0;
        for (node, peer) in [(0, "b"), (1, "a")] {
            for family in [Family::V4, Family::V6] {
                net.paths.set(peer, family, direct);
            }
            net.apply(node);
            let gateway = net.nodes[node].netns.ip_json(&format!(
                "route show {}",
                crate::net::pod_cidr(1 - node, Family::V4)
            ))[0]["gateway"]
                .clone();
            let expect = if direct {
                crate::net::node_ip(1 - node, Family::V4)
            } else {
                pod_ip(1 - node, Family::V4, 1)
            };
            assert_eq!(gateway, expect);
        }
    }
    for stream in streams {
        let counted = stream.stop();
        assert_eq!(counted.answered, counted.asked, "{counted:?}");
        assert!(counted.errors.is_empty(), "{counted:?}");
        assert!(counted.asked > 100, "{counted:?}");
    }
}

#[test]
fn a_peer_moves_leaves_and_comes_back() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Vxlan] {
        let mut net = Net::new(mode, Stack::V4, Stack::V4);
        net.apply_all();
        let _server = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
        let ask = |net: &Net| net.nodes[0].pod.ask_tcp("10.244.1.5:80");
        assert_eq!(ask(&net).unwrap(), "b");

        let b = &net.nodes[1].netns;
        b.ip("addr del 172.30.0.12/24 dev eth0");
        b.ip("addr add 172.30.0.22/24 dev eth0");
        net.api[1].internal_ips = vec!["172.30.0.22".to_owned()];
        net.apply_all();
        assert_eq!(ask(&net).unwrap(), "b");
        let fdb = net.nodes[0].netns.must_run(&["bridge", "fdb", "show"]);
        assert!(!fdb.contains("172.30.0.12"), "{fdb}");

        let b = net.api.remove(1);
        net.apply(0);
        assert!(ask(&net).is_err());
        let left = net.nodes[0].netns.ip("neigh show nud permanent");
        assert!(!left.contains("10.244.1."), "{left}");
        net.api.push(b);
        net.apply(0);
        assert_eq!(ask(&net).unwrap(), "b");

        // Its range changes, this node's, too.
        net.api[0].pod_cidrs = vec!["10.244.100.0/24".to_owned()];
        net.api[2].pod_cidrs = vec!["10.244.101.0/24".to_owned()];
        net.apply_all();
        // c's place in the list: the API's order does not matter.
        let routes = net.nodes[0].routes("-4").join("\n");
        assert!(routes.contains("10.244.101.0/24"), "{routes}");
        assert!(!routes.contains("10.244.1.0/24"), "{routes}");
        if mode == PodRoutes::Vxlan {
            let addresses = net.nodes[0].netns.ip("-4 addr show dev seaway.vx");
            assert!(addresses.contains("10.244.100.1/32"), "{addresses}");
            assert!(!addresses.contains("10.244.0.1/32"), "{addresses}");
        }
        assert!(!net.apply(0).any());
    }
}

fn index(net: &Net) -> u64 {
    net.nodes[0].netns.ip_json("link show seaway.vx")[0]["ifindex"]
        .as_u64()
        .unwrap()
}

#[test]
fn the_device_is_replaced_when_it_has_to_be_and_not_otherwise() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Vxlan, Stack::V4, Stack::V4);
    net.apply_all();
    let _server = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
    let mut before = index(&net);
    let mut step = |net: &Net, replaced: bool, what: &str| {
        net.apply_all();
        let now = index(net);
        assert_eq!(now != before, replaced, "{what}");
        before = now;
        assert_eq!(
            net.nodes[0].pod.ask_tcp("10.244.1.5:80").unwrap(),
            "b",
            "{what}"
        );
        assert!(!net.apply(0).any(), "{what}");
    };
    step(&net, false, "nothing");
    net.settings.vxlan.port = 4789;
    step(&net, true, "port");
    net.settings.vxlan.vni = 84;
    step(&net, true, "VNI");
    let a = &net.nodes[0].netns;
    a.ip("addr add 172.30.0.21/24 dev eth0");
    net.api[0].internal_ips = vec!["172.30.0.21".to_owned()];
    step(&net, true, "local address");
    // The MTU follows the uplink without a new device.
    for mtu in [1400, 1500] {
        net.nodes[0].netns.ip(&format!("link set eth0 mtu {mtu}"));
        step(&net, false, "MTU");
        let link = &net.nodes[0].netns.ip_json("link show seaway.vx")[0];
        assert_eq!(link["mtu"], mtu - 50);
        assert_eq!(net.pod_mtu(0), mtu - 50);
    }
    // Another card: the old one's device cannot be used.
    let a = &net.nodes[0].netns;
    net.fabric.ip(&format!(
        "link add p-a2 type veth peer name eth1 netns {}",
        a.name()
    ));
    net.fabric.ip("link set p-a2 master br0 up");
    a.ip("link set eth1 up");
    a.ip("addr flush dev eth0");
    a.ip("addr add 172.30.0.21/24 dev eth1");
    step(&net, true, "uplink");
}
