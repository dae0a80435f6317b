//! VXLAN where the network between nodes knows no pod addresses.

use seaway_podnet::{Family, PodRoutes, vtep_mac};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, require_root};

use crate::net::{Net, Stack, TestNode, at, node_ip, plug, pod_ip};
use crate::traffic::{datagram, fragmented};

/// Pods and nodes reach pods on other nodes, and are seen by their own addresses.
#[track_caller]
fn all_reach_all(net: &Net, pods: Stack) {
    for family in pods.families() {
        for (server, node) in net.nodes.iter().enumerate() {
            let address = at(&pod_ip(server, *family, 5), 80);
            let _server = node.pod.serve(Protocol::Tcp, &address, node.name);
            for (client, from) in net.nodes.iter().enumerate() {
                let answer = from.pod.ask(Protocol::Tcp, &address);
                let answer = answer.unwrap_or_else(|e| panic!("{} to {address}: {e}", from.name));
                assert_eq!(answer.name, node.name);
                assert_eq!(answer.client.ip().to_string(), pod_ip(client, *family, 5));
                if client != server {
                    let answer = from.netns.ask(Protocol::Tcp, &address).unwrap();
                    assert_eq!(answer.client.ip().to_string(), pod_ip(client, *family, 1));
                }
            }
        }
    }
}

#[test]
fn pods_reach_each_other_where_the_network_drops_pod_addresses() {
    if !require_root() {
        return;
    }
    for (underlay, pods) in [
        (Stack::V4, Stack::V4),
        (Stack::V6, Stack::V6),
        (Stack::Dual, Stack::Dual),
        (Stack::V4, Stack::Dual),
        (Stack::V6, Stack::V4),
    ] {
        let mut net = Net::new(PodRoutes::Direct, underlay, pods);
        net.drop_pod_addresses();
        if underlay == pods {
            net.apply_all();
            for family in pods.families() {
                let address = at(&pod_ip(1, *family, 5), 80);
                let _server = net.nodes[1].pod.serve(Protocol::Tcp, &address, "b");
                let direct = net.nodes[0].pod.ask_tcp(&address);
                assert!(
                    direct.is_err(),
                    "the network passes pod addresses: {direct:?}"
                );
            }
        }
        // The mode is changed on nodes that run.
        net.settings.mode = PodRoutes::Auto;
        net.apply_all();
        all_reach_all(&net, pods);
        for place in 0..net.nodes.len() {
            let again = net.apply(place);
            assert!(!again.any(), "{underlay:?} {pods:?}: {again:?}");
        }
    }
}

#[test]
fn a_packet_of_exactly_the_pod_mtu_passes_whole() {
    if !require_root() {
        return;
    }
    for (underlay, overhead) in [(Stack::V4, 50), (Stack::V6, 70)] {
        let net = Net::new(PodRoutes::Vxlan, underlay, Stack::Dual);
        net.drop_pod_addresses();
        net.apply_all();
        net.set_pod_mtu();
        let mtu = net.pod_mtu(0);
        assert_eq!(mtu, 1500 - overhead);
        let (a, b) = (&net.nodes[0], &net.nodes[1]);
        for family in [Family::V4, Family::V6] {
            let address = at(&pod_ip(1, family, 5), 53);
            let _server = b.pod.serve(Protocol::Udp, &address, "b");
            datagram(&a.pod, &address, mtu).unwrap();
        }
        let pieces = || [&a.pod, &a.netns, &b.netns, &b.pod].map(fragmented);
        assert_eq!(pieces(), [0; 4], "sent in pieces");
        // That a packet that does not fit would have shown.
        let address = at(&pod_ip(1, Family::V4, 5), 54);
        let _server = b.pod.serve(Protocol::Udp, &address, "b");
        datagram(&a.pod, &address, mtu + 1).unwrap();
        assert_ne!(pieces(), [0; 4]);
    }
}

/// Moves node c to another subnet, behind a router.
fn put_behind_a_router(net: &mut Net) -> Netns {
    let router = Netns::new("router");
    plug(&net.fabric, &router, "router", &["172.30.0.1/24"]);
    router.sysctl("ipv4/ip_forward", "1");
    let c = &net.nodes[2].netns;
    c.ip("addr flush dev eth0");
    c.ip("link del eth0");
    seaway_testbed::connect(
        &router,
        "to-c",
        "172.31.0.1/24",
        c,
        "eth0",
        "172.31.0.13/24",
    );
    c.ip("route add default via 172.31.0.1");
    for node in &net.nodes[..2] {
        node.netns.ip("route add default via 172.30.0.1");
    }
    net.api[2].internal_ips = vec!["172.31.0.13".to_owned()];
    router
}

#[test]
fn a_node_on_another_subnet_gets_vxlan_even_where_a_path_counts_as_proven() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Auto, Stack::V4, Stack::V4);
    let _router = put_behind_a_router(&mut net);
    for name in ["a", "b", "c"] {
        net.paths.set(name, Family::V4, true);
    }
    net.apply_all();
    all_reach_all(&net, Stack::V4);
    let gateway = |node: &TestNode, to: &str| {
        node.netns.ip_json(&format!("route show {to}"))[0]["gateway"].clone()
    };
    assert_eq!(gateway(&net.nodes[0], "10.244.1.0/24"), "172.30.0.12");
    assert_eq!(gateway(&net.nodes[0], "10.244.2.0/24"), "10.244.2.1");
    assert!(!net.apply(0).any());
}

#[test]
fn the_device_is_ours_by_name_and_holds_what_peers_expect() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Vxlan, Stack::Dual, Stack::Dual);
    net.apply_all();
    let a = &net.nodes[0].netns;
    let link = &a.ip_json("-d link show seaway.vx")[0];
    assert_eq!(link["address"], vtep_mac("a").to_string());
    assert_eq!(link["mtu"], 1450);
    let data = &link["linkinfo"]["info_data"];
    assert_eq!((&data["id"], &data["port"]), (&83.into(), &8472.into()));
    assert_eq!(
        (&data["link"], &data["local"]),
        (&"eth0".into(), &"172.30.0.11".into())
    );
    let addresses = &a.ip_json("addr show dev seaway.vx scope global")[0]["addr_info"];
    // What the filter hides leaves an empty object.
    let addresses = addresses.as_array().unwrap().iter();
    let addresses: Vec<_> = addresses
        .filter_map(|a| Some(format!("{}/{}", a["local"].as_str()?, a["prefixlen"])))
        .collect();
    assert_eq!(addresses, ["10.244.0.1/32", "fd00::1/128"]);
    for (place, name) in [(1, "b"), (2, "c")] {
        let fdb = a.must_run(&["bridge", "fdb", "show", "dev", "seaway.vx"]);
        let mac = vtep_mac(name);
        let entry = format!("{mac} dst {} self permanent", node_ip(place, Family::V4));
        assert!(fdb.contains(&entry), "{entry} not in {fdb}");
        assert!(!fdb.contains("00:00:00:00:00:00"), "{fdb}");
        for family in [Family::V4, Family::V6] {
            let reserved = pod_ip(place, family, 1);
            let entry = &a.ip_json(&format!("neigh show {reserved} dev seaway.vx"))[0];
            assert_eq!(entry["lladdr"], mac.to_string());
        }
    }
}

/// How many packets the node has sent through its overlay.
fn sent(node: &TestNode) -> u64 {
    let link = &node.netns.ip_json("-s link show seaway.vx")[0];
    link["stats64"]["tx"]["packets"].as_u64().unwrap()
}

fn received(node: &TestNode) -> u64 {
    let link = &node.netns.ip_json("-s link show seaway.vx")[0];
    link["stats64"]["rx"]["packets"].as_u64().unwrap()
}

#[test]
fn nothing_floods_and_addresses_that_no_pod_has_are_answered_by_their_node() {
    if !require_root() {
        return;
    }
    for (family, nobody, elsewhere) in [
        (Family::V4, "10.244.1.77", "10.244.9.9"),
        (Family::V6, "fd00:0:0:1::77", "fd00:0:0:9::9"),
    ] {
        let net = Net::new(PodRoutes::Vxlan, Stack::Dual, Stack::Dual);
        net.apply_all();
        let [a, b, c] = &net.nodes[..] else { panic!() };
        // b would send back what it has no route for, were it not answered there.
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        b.netns.ip(&format!(
            "{flag} route add default via {}",
            node_ip(0, family)
        ));
        let before = [sent(a), received(b), sent(b), received(c)];
        let error = a.pod.ask_tcp(&at(nobody, 80)).unwrap_err();
        // How the families spell "unreachable".
        let expect = match family {
            Family::V4 => std::io::ErrorKind::HostUnreachable,
            Family::V6 => std::io::ErrorKind::NetworkUnreachable,
        };
        assert_eq!(error.kind(), expect, "{error}");
        let after = [sent(a), received(b), sent(b), received(c)];
        let counts: Vec<_> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        // One answer to each question (which TCP may repeat), and c has seen nothing of it.
        let [asked, ..] = counts[..] else { panic!() };
        assert!((1..=2).contains(&asked), "{family:?}: {counts:?}");
        assert_eq!(counts, [asked, asked, asked, 0], "{family:?}");
        // A range of nobody's does not even get to the overlay.
        let before = sent(a);
        assert!(a.pod.ask_tcp(&at(elsewhere, 80)).is_err());
        assert_eq!(sent(a), before);
    }
}
