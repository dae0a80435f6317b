//! What others have changed is repaired.

use seaway_podnet::{PodRoutes, vtep_mac};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::net::{Net, Stack};

#[test]
fn routes_forwarding_and_masquerade_are_repaired() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Direct, Stack::V4, Stack::V4);
    net.apply(0);
    let a = &net.nodes[0].netns;
    let routes = net.nodes[0].routes("-4");
    a.ip("route del 10.244.1.0/24");
    a.sysctl("ipv4/ip_forward", "0");
    // Somebody's mistake under our mark: it is ours, so it goes.
    a.ip("route add 10.244.9.0/24 via 172.30.0.99 proto 83");
    a.must_run(&["nft", "flush", "table", "ip", "seaway"]);
    let changes = net.apply(0);
    assert_eq!(
        (changes.replaced, changes.removed, changes.node),
        (1, 1, true)
    );
    assert_eq!(net.nodes[0].routes("-4"), routes);
    let forward = a.must_run(&["cat", "/proc/sys/net/ipv4/ip_forward"]);
    assert_eq!(forward.trim(), "1");
    let table = a.must_run(&["nft", "list", "table", "ip", "seaway"]);
    assert!(table.contains("masquerade"), "{table}");
}

#[test]
fn each_part_of_the_overlay_is_repaired() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Auto, Stack::Dual, Stack::Dual);
    net.apply_all();
    let a = &net.nodes[0].netns;
    let v4 = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
    let v6 = net.nodes[1]
        .pod
        .serve(Protocol::Tcp, "[fd00:0:0:1::5]:80", "b");
    let mac = vtep_mac("b");
    for damage in [
        format!("bridge fdb del {mac} dev seaway.vx dst 172.30.0.12 self"),
        format!("bridge fdb replace {mac} dev seaway.vx dst 172.30.0.99 self permanent"),
        "bridge fdb add 00:00:00:00:00:00 dev seaway.vx dst 172.30.0.13 self permanent".to_owned(),
        "ip neigh del 10.244.1.1 dev seaway.vx".to_owned(),
        "ip neigh replace fd00:0:0:1::1 dev seaway.vx lladdr 02:00:00:00:00:99".to_owned(),
        "ip addr del 10.244.0.1/32 dev seaway.vx".to_owned(),
        "ip addr del fd00::1/128 dev seaway.vx".to_owned(),
        "ip addr add 10.244.0.9/32 dev seaway.vx".to_owned(),
        "ip route del 10.244.1.0/24 proto 83".to_owned(),
        "ip -6 route flush proto 83 dev seaway.vx".to_owned(),
        "ip link set seaway.vx down".to_owned(),
        "ip link set seaway.vx mtu 1300".to_owned(),
        "ip link set seaway.vx address 02:00:00:00:00:98".to_owned(),
        "ip link del seaway.vx".to_owned(),
        "ip rule del fwmark 0x53".to_owned(),
        "ip -6 rule del fwmark 0x53".to_owned(),
        "ip route flush table 83".to_owned(),
        "ip -6 route flush table 83".to_owned(),
    ] {
        let words: Vec<_> = damage.split(' ').collect();
        a.must_run(&words);
        let changes = net.apply(0);
        assert!(changes.any(), "{damage} was not noticed");
        let again = net.apply(0);
        assert!(!again.any(), "after {damage}: {again:?}");
        for address in [v4.address(), v6.address()] {
            let answer = net.nodes[0].pod.ask_tcp(&address.to_string());
            assert_eq!(answer.unwrap(), "b", "after {damage}");
        }
        let fdb = a.must_run(&["bridge", "fdb", "show", "dev", "seaway.vx"]);
        assert_eq!(fdb.lines().count(), 2, "after {damage}: {fdb}");
    }
}
