//! Acceptance cases about traffic between nodes.

use std::time::Duration;

use seaway_firewall::Firewall;
use seaway_podnet::{Family, PodRoutes};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, XTABLES_WAIT, require_root};

use crate::net::{Net, Stack, at, pod_ip};
use crate::traffic::{serve_bytes, take_bytes};

/// A good deal more than all buffers on the way.
const BYTES: usize = 24 << 20;
/// A stall for want of a checksum lasts 63 s (flannel#1279), one for want of room for ever.
const AT_ONCE: Duration = Duration::from_secs(20);

fn vxlan(pods: Stack) -> Net {
    let net = Net::new(PodRoutes::Vxlan, Stack::V4, pods);
    net.drop_pod_addresses();
    net.apply_all();
    net.set_pod_mtu();
    net
}

#[test]
fn case_69_a_big_flow_over_the_overlay_does_not_stall() {
    if !require_root() {
        return;
    }
    let net = vxlan(Stack::Dual);
    for (family, headers) in [(Family::V4, 40), (Family::V6, 60)] {
        let address = at(&pod_ip(1, family, 5), 80);
        let server = serve_bytes(&net.nodes[1].pod, &address, BYTES);
        let (bytes, time, mss) = take_bytes(&net.nodes[0].pod, &address);
        server.join().unwrap();
        assert_eq!(bytes, BYTES);
        assert!(time < AT_ONCE, "{time:?}");
        // Timestamps take 12 bytes of each segment.
        let mtu = net.pod_mtu(0);
        assert!(
            (mtu - headers - 12..=mtu - headers).contains(&mss),
            "MSS {mss} of MTU {mtu}"
        );
    }
}

#[test]
fn case_69_masqueraded_traffic_through_the_overlay_does_not_stall() {
    if !require_root() {
        return;
    }
    let net = vxlan(Stack::V4);
    // As a service proxy does it for a NodePort whose endpoint is on another node: the mark
    // stays on the outer packet, too, and the source port is chosen at random.
    let a = &net.nodes[0].netns;
    for line in [
        "add table ip proxy",
        "add chain ip proxy to-pod { type nat hook prerouting priority -100; }",
        "add rule ip proxy to-pod ip daddr 172.30.0.11 tcp dport 30080 meta mark set 0x4000 \
         dnat to 10.244.1.5:80",
        "add chain ip proxy from-node { type nat hook postrouting priority 100; }",
        "add rule ip proxy from-node meta mark & 0x4000 == 0x4000 masquerade fully-random",
    ] {
        a.must_run(&["nft", line]);
    }
    for _ in 0..3 {
        let server = serve_bytes(&net.nodes[1].pod, "10.244.1.5:80", BYTES / 4);
        let (bytes, time, _) = take_bytes(&net.world, "172.30.0.11:30080");
        server.join().unwrap();
        assert_eq!(bytes, BYTES / 4);
        assert!(time < AT_ONCE, "{time:?}");
    }
    // The node has taken the address that b knows the way back to.
    let _server = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
    let answer = net.world.ask(Protocol::Tcp, "172.30.0.11:30080").unwrap();
    assert_eq!(answer.client.ip().to_string(), "10.244.0.1");
}

#[test]
fn case_63_pods_on_two_nodes_whose_forward_policy_is_drop() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Vxlan] {
        let net = Net::new(mode, Stack::V4, Stack::V4);
        for node in &net.nodes {
            node.netns
                .must_run(&["iptables", XTABLES_WAIT, "-P", "FORWARD", "DROP"]);
        }
        net.apply_all();
        let _server = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
        assert!(net.nodes[0].pod.ask_tcp("10.244.1.5:80").is_err());
        // The CNI plugin does it with every pod.
        for node in &net.nodes {
            let accept = || Firewall::open().unwrap().ensure_forward_accept().unwrap();
            node.netns.enter(accept);
        }
        assert_eq!(net.nodes[0].pod.ask_tcp("10.244.1.5:80").unwrap(), "b");
        assert_eq!(net.nodes[2].pod.ask_tcp("10.244.1.5:80").unwrap(), "b");
    }
}

#[test]
fn case_66_an_address_that_a_new_pod_gets_works_at_once_from_other_nodes() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Vxlan] {
        let mut net = Net::new(mode, Stack::V4, Stack::V4);
        net.apply_all();
        let first = net.nodes[1]
            .pod
            .serve(Protocol::Tcp, "10.244.1.5:80", "first");
        assert_eq!(net.nodes[0].pod.ask_tcp("10.244.1.5:80").unwrap(), "first");
        drop(first);
        net.nodes[1].netns.ip("link del swtest");
        net.nodes[1].pod = Netns::new("pod");
        net.nodes[1].attach(1, Stack::V4, 5);
        let _second = net.nodes[1]
            .pod
            .serve(Protocol::Tcp, "10.244.1.5:80", "second");
        let (pod, before) = (&net.nodes[0].pod, net.nodes[0].pod.repeated_syns());
        assert_eq!(pod.ask_tcp("10.244.1.5:80").unwrap(), "second");
        assert_eq!(pod.repeated_syns(), before, "at the first packet");
    }
}

#[test]
fn case_66_a_range_that_another_node_gets_works_at_once() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Vxlan] {
        let mut net = Net::new(mode, Stack::V4, Stack::V4);
        net.apply_all();
        let _b = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
        assert_eq!(net.nodes[0].pod.ask_tcp("10.244.1.5:80").unwrap(), "b");
        // b is removed, and c is given its range; its pod there gets the address.
        net.nodes[1].netns.ip("link set eth0 down");
        net.api.remove(1);
        net.api[1].pod_cidrs.push("10.244.1.0/24".to_owned());
        let c = &net.nodes[2];
        c.pod.ip("addr add 10.244.1.5/32 dev eth0");
        c.netns.ip("route add 10.244.1.5/32 dev swtest proto 83");
        let links = c.pod.ip_json("link show dev eth0");
        let mac = links[0]["address"].as_str().unwrap();
        c.netns.ip(&format!(
            "neigh add 10.244.1.5 dev swtest lladdr {mac} nud permanent"
        ));
        let _c = c.pod.serve(Protocol::Tcp, "10.244.1.5:80", "c");
        net.apply(0);
        net.apply(2);
        let (pod, before) = (&net.nodes[0].pod, net.nodes[0].pod.repeated_syns());
        assert_eq!(pod.ask_tcp("10.244.1.5:80").unwrap(), "c");
        assert_eq!(pod.repeated_syns(), before, "at the first packet");
    }
}
