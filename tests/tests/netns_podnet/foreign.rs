//! What is not ours stays; what is ours goes; and probes go their own way.

use std::net::{IpAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use seaway_podnet::{Family, PROBE_MARK, PodNetwork, PodNetworkError, PodRoutes};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, require_root};

use crate::net::{Net, Stack, at, node_ip, pod_ip};

/// All that the pod network could have to do with, in the words of other tools.
fn everything(netns: &Netns) -> Vec<String> {
    let mut all = Vec::new();
    for words in [
        "ip -d -o link show",
        "ip -o addr show",
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip -4 rule show",
        "ip -6 rule show",
        "ip -4 neigh show nud permanent",
        "ip -6 neigh show nud permanent",
        "bridge fdb show",
        "nft list ruleset",
    ] {
        let words: Vec<_> = words.split(' ').collect();
        // Link-local addresses come when the kernel is done with looking for duplicates.
        let lines = netns.must_run(&words);
        let lines = lines.lines().filter(|line| !line.contains("fe80::"));
        all.push(lines.collect::<Vec<_>>().join("\n"));
    }
    all
}

#[test]
fn removal_leaves_nothing_of_ours_and_all_of_theirs() {
    if !require_root() {
        return;
    }
    for mode in [PodRoutes::Direct, PodRoutes::Auto] {
        let net = Net::new(mode, Stack::Dual, Stack::Dual);
        let a = &net.nodes[0].netns;
        for foreign in [
            "ip route add 10.99.0.0/16 via 172.30.0.99 proto static",
            "ip route add 10.98.0.0/16 via 172.30.0.99 table 83 proto static",
            "ip rule add fwmark 0x53 lookup 84 priority 83",
            "ip -6 rule add fwmark 0x53 lookup 84 priority 83",
            "ip link add flannel.1 type vxlan id 1 dstport 8472 local 172.30.0.11 dev eth0 nolearning",
            "ip link set flannel.1 up",
            "bridge fdb add 02:00:00:00:00:77 dev flannel.1 dst 172.30.0.12 self permanent",
            "ip neigh add 10.97.0.0 dev flannel.1 lladdr 02:00:00:00:00:77 nud permanent",
            "nft add table ip foreign",
        ] {
            let words: Vec<_> = foreign.split(' ').collect();
            a.must_run(&words);
        }
        // Stays on, and brings addresses of its own along.
        a.sysctl("ipv6/conf/all/forwarding", "1");
        let before = everything(a);
        net.apply(0);
        assert_ne!(everything(a), before);
        for _ in 0..2 {
            let remove = || PodNetwork::open().unwrap().remove_all().unwrap();
            let changes = a.enter(remove);
            assert!(changes.failed.is_empty(), "{:?}", changes.failed);
            for (now, before) in everything(a).iter().zip(&before) {
                assert_eq!(now, before, "{mode}");
            }
        }
    }
}

#[test]
fn a_link_of_another_kind_under_our_name_stays_and_is_named() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Auto, Stack::V4, Stack::V4);
    let a = &net.nodes[0].netns;
    a.ip("link add seaway.vx type bridge");
    let before = a.ip_json("link show seaway.vx");
    let error = net.try_apply(0).unwrap_err();
    assert!(matches!(error, PodNetworkError::ForeignDevice { .. }));
    assert_eq!(
        error.to_string(),
        "make VXLAN device seaway.vx: there is a link of this name, of kind bridge"
    );
    a.enter(|| PodNetwork::open().unwrap().remove_all().unwrap());
    assert_eq!(a.ip_json("link show seaway.vx"), before);
}

#[test]
fn changing_to_direct_routes_takes_the_overlay_away() {
    if !require_root() {
        return;
    }
    let mut net = Net::new(PodRoutes::Auto, Stack::Dual, Stack::Dual);
    net.apply_all();
    net.settings.mode = PodRoutes::Direct;
    net.apply_all();
    let a = &net.nodes[0].netns;
    let all = everything(a).join("\n");
    for ours in ["seaway.vx", "fwmark", "table 83", "10.244.0.1 "] {
        assert!(!all.contains(ours), "{ours} is left: {all}");
    }
    let _server = net.nodes[1].pod.serve(Protocol::Tcp, "10.244.1.5:80", "b");
    assert_eq!(net.nodes[0].pod.ask_tcp("10.244.1.5:80").unwrap(), "b");
}

/// Asks from the reserved address with the mark of probes.
fn probe(net: &Net, peer: usize, family: Family) -> std::io::Result<()> {
    let source: IpAddr = pod_ip(0, family, 1).parse().unwrap();
    let target = at(&pod_ip(peer, family, 1), 7);
    net.nodes[0].netns.enter(|| {
        let socket = UdpSocket::bind((source, 0))?;
        setsockopt(&socket, sockopt::Mark, &PROBE_MARK)?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
        socket.connect(&target)?;
        socket.send(b"who?")?;
        socket.recv(&mut [0; 512]).map(drop)
    })
}

#[test]
fn probes_take_the_direct_path_and_no_other() {
    if !require_root() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let net = Net::new(PodRoutes::Auto, Stack::Dual, Stack::Dual);
        net.apply_all();
        let reserved = at(&pod_ip(1, family, 1), 7);
        let _server = net.nodes[1].netns.serve(Protocol::Udp, &reserved, "b");
        // The first may come before the kernel receives for the new reserved addresses.
        let answered = (0..5).any(|_| probe(&net, 1, family).is_ok());
        assert!(answered, "{family:?}");
        net.drop_pod_addresses();
        // What pods use works on, and so must not have been what answered.
        assert!(net.nodes[0].netns.ask_udp(&reserved).is_ok());
        let lost = probe(&net, 1, family).unwrap_err();
        assert_eq!(lost.kind(), std::io::ErrorKind::WouldBlock);
        // An address that is a neighbour no more: refused, not sent by the overlay.
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        let a = &net.nodes[0].netns;
        a.ip(&format!(
            "{flag} route flush table 83 via {}",
            node_ip(1, family)
        ));
        let refused = probe(&net, 1, family).unwrap_err();
        assert_ne!(refused.kind(), std::io::ErrorKind::WouldBlock, "{refused}");
    }
}

#[test]
fn ipv6_forwarding_keeps_what_routers_have_said() {
    if !require_root() {
        return;
    }
    let net = Net::new(PodRoutes::Auto, Stack::Dual, Stack::Dual);
    let a = &net.nodes[0].netns;
    a.ip("link add other type bridge");
    let read = |link: &str| {
        let path = format!("/proc/sys/net/ipv6/conf/{link}/accept_ra");
        a.must_run(&["cat", &path]).trim().to_owned()
    };
    assert_eq!(
        (read("eth0"), read("other")),
        ("1".to_owned(), "1".to_owned())
    );
    net.apply(0);
    assert_eq!(read("eth0"), "2");
    assert_eq!(read("other"), "1", "no route leads there");
    assert_eq!(read("seaway.vx"), "0");
    let forward = a.must_run(&["cat", "/proc/sys/net/ipv6/conf/all/forwarding"]);
    assert_eq!(forward.trim(), "1");
    // One that has been told not to listen is not made to.
    let b = &net.nodes[1].netns;
    b.sysctl("ipv6/conf/eth0/accept_ra", "0");
    net.apply(1);
    let path = "/proc/sys/net/ipv6/conf/eth0/accept_ra";
    assert_eq!(b.must_run(&["cat", path]).trim(), "0");
}
