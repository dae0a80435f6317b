//! Changes while traffic flows.

use seaway_podnet::{Family, PodRoutes};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::net::{Net, Stack, at, node_ip, pod_cidr, pod_ip};
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
            let gateway = net.nodes[node]
                .netns
                .ip_json(&format!("route show {}", pod_cidr(1 - node, Family::V4)))[0]["gateway"]
                .clone();
            let expect = if direct {
                node_ip(1 - node, Family::V4)
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

/// Pod a asks pod b in every family.
#[track_caller]
fn assert_reaches(net: &Net, stack: Stack) {
    for family in stack.families() {
        let address = at(&pod_ip(1, *family, 5), 80);
        let answer = net.nodes[0].pod.ask_tcp(&address);
        let answer = answer.unwrap_or_else(|e| panic!("{stack:?} to {address}: {e}"));
        assert_eq!(answer, "b");
    }
}

#[test]
fn a_peer_moves_leaves_and_comes_back() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Vxlan] {
        for stack in [Stack::V4, Stack::V6, Stack::Dual] {
            let mut net = Net::new(mode, stack, stack);
            net.apply_all();
            let b = &net.nodes[1].pod;
            let serve = |family: &Family| {
                let address = at(&pod_ip(1, *family, 5), 80);
                b.serve(Protocol::Tcp, &address, "b")
            };
            let _servers: Vec<_> = stack.families().iter().map(serve).collect();
            assert_reaches(&net, stack);
            moves(&mut net, stack);
            leaves_and_comes_back(&mut net, stack);
            ranges_change(&mut net, stack);
        }
    }
}

/// b gets another address of each family that it has.
fn moves(net: &mut Net, stack: Stack) {
    let b = &net.nodes[1].netns;
    for family in stack.families() {
        let length = match family {
            Family::V4 => 24,
            Family::V6 => 64,
        };
        let (old, new) = (node_ip(1, *family), node_ip(11, *family));
        b.ip(&format!("addr del {old}/{length} dev eth0"));
        b.ip(&format!("addr add {new}/{length} dev eth0"));
    }
    let ips = stack.families().iter().map(|family| node_ip(11, *family));
    net.api[1].internal_ips = ips.collect();
    net.apply_all();
    assert_reaches(net, stack);
    let fdb = net.nodes[0].netns.must_run(&["bridge", "fdb", "show"]);
    for family in stack.families() {
        let old = node_ip(1, *family);
        assert!(!fdb.contains(&format!("{old} ")), "{stack:?}: {fdb}");
    }
}

fn leaves_and_comes_back(net: &mut Net, stack: Stack) {
    let b = net.api.remove(1);
    net.apply(0);
    for family in stack.families() {
        let answer = net.nodes[0].pod.ask_tcp(&at(&pod_ip(1, *family, 5), 80));
        assert!(answer.is_err(), "{stack:?} {family:?}: {answer:?}");
    }
    let left = net.nodes[0].netns.ip("neigh show nud permanent");
    for pods in ["10.244.1.", "fd00:0:0:1:"] {
        assert!(!left.contains(pods), "{stack:?}: {left}");
    }
    net.api.push(b);
    net.apply(0);
    assert_reaches(net, stack);
}

/// b's range changes, and this node's, too.
fn ranges_change(net: &mut Net, stack: Stack) {
    // c has b's place in the list by now: the API's order does not matter.
    for (node, range) in [(0, 100), (2, 101)] {
        let cidrs = stack.families().iter().map(|f| pod_cidr(range, *f));
        net.api[node].pod_cidrs = cidrs.collect();
    }
    net.apply_all();
    let a = &net.nodes[0];
    for family in stack.families() {
        let flag = match family {
            Family::V4 => "-4",
            Family::V6 => "-6",
        };
        let routes = a.routes(flag).join("\n");
        assert!(routes.contains(&pod_cidr(101, *family)), "{routes}");
        assert!(!routes.contains(&pod_cidr(1, *family)), "{routes}");
        if net.settings.mode == PodRoutes::Vxlan {
            let addresses = a.netns.ip(&format!("{flag} addr show dev seaway.vx"));
            let [new, old] = [100, 0].map(|range| format!(" {}/", pod_ip(range, *family, 1)));
            assert!(addresses.contains(&new), "{addresses}");
            assert!(!addresses.contains(&old), "{addresses}");
        }
    }
    assert!(!net.apply(0).any(), "{stack:?}");
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
