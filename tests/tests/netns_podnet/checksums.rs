//! Checksums of what is translated and then goes through the overlay.
//!
//! Linux before 5.7 wrote a wrong one into the outer UDP header when that was translated as
//! well, unless offload was switched off for the overlay's device (flannel#1279). Here offload
//! is on, and the links between nodes compute and verify.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use seaway_podnet::{Family, PodRoutes};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, require_root};

use crate::net::{Net, Stack, at, node_ip, pod_ip};

/// Of a Service, which node a leads to pod b.
const SERVICE: [&str; 2] = ["10.96.0.1", "fd00:96::1"];
/// Several segments, so that they are cut late, and less than all buffers take.
const BYTES: usize = 48 << 10;
/// Long beside a local round trip, short beside the 63 s of a connection that gets through in
/// the end.
const PATIENCE: Duration = Duration::from_secs(10);

fn nft(netns: &Netns, lines: &[&str]) {
    for line in lines {
        netns.must_run(&["nft", line]);
    }
}

/// What becomes of the mark of packets to be masqueraded, which the outer packet inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// As service proxies once did it: the outer packet is masqueraded like the inner one.
    Stays,
    /// As all do it now, ours too. The only way over IPv6, where the outer header has a
    /// checksum that the kernel does not correct for another port.
    TakenOff,
}

/// What a service proxy does; each source port is chosen at random.
fn translate(a: &Netns, mark: Mark) {
    let to_b = [Family::V4, Family::V6].map(|family| pod_ip(1, family, 5));
    nft(
        a,
        &[
            "add table inet proxy",
            "add chain inet proxy outside { type nat hook prerouting priority -100; }",
            "add chain inet proxy own { type nat hook output priority -100; }",
            "add chain inet proxy post { type nat hook postrouting priority 100; }",
            "add rule inet proxy post meta mark & 0x4000 == 0 return",
            "add rule inet proxy post udp dport 8472 counter masquerade fully-random",
        ],
    );
    let inner = match mark {
        Mark::Stays => "masquerade fully-random",
        Mark::TakenOff => "meta mark set meta mark & 0xffffbfff masquerade fully-random",
    };
    nft(a, &[&format!("add rule inet proxy post {inner}")]);
    for chain in ["outside", "own"] {
        for (family, service, pod) in [("ip", SERVICE[0], &to_b[0]), ("ip6", SERVICE[1], &to_b[1])]
        {
            let rule = format!(
                "add rule inet proxy {chain} {family} daddr {service} meta mark set 0x4000 \
                 dnat {family} to {pod}"
            );
            nft(a, &[&rule]);
        }
    }
}

/// Connections of the overlay whose source was translated.
fn outer_translations(a: &Netns) -> u64 {
    let rules = a.must_run(&["nft", "list", "chain", "inet", "proxy", "post"]);
    let (_, count) = rules.split_once("counter packets ").unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

/// Nodes whose links have no offload, and the world, which knows a way to the Service.
fn net(underlay: Stack, mark: Mark) -> Net {
    let net = Net::new(PodRoutes::Vxlan, underlay, Stack::Dual);
    net.drop_pod_addresses();
    net.apply_all();
    net.set_pod_mtu();
    let a = &net.nodes[0].netns;
    // A way for Service addresses to be sent at all.
    a.ip("-4 route add default dev eth0");
    a.ip("-6 route add default dev eth0");
    for family in underlay.families() {
        let node = node_ip(0, *family);
        let service = SERVICE[usize::from(*family == Family::V6)];
        net.world.ip(&format!("route add {service} via {node}"));
    }
    translate(a, mark);
    for node in &net.nodes {
        node.netns.set_tx_checksum_offload("eth0", false).unwrap();
        let overlay = node.netns.tx_checksum_offload("seaway.vx").unwrap();
        assert!(overlay, "offload of the overlay's device is off");
    }
    net
}

/// Packets of `protocol` that the namespace has thrown away for their checksum.
fn wrong_in(netns: &Netns, protocol: &str) -> u64 {
    let read = |name| netns.enter(|| std::fs::read_to_string(name).unwrap());
    let text = read("/proc/thread-self/net/snmp");
    let of_protocol = format!("{protocol}: ");
    let mut lines = text.lines().filter_map(|l| l.strip_prefix(&of_protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "InCsumErrors").unwrap();
    let text = read("/proc/thread-self/net/snmp6");
    let name = format!("{protocol}6InCsumErrors");
    // TCP counts both families together.
    let v6 = text.lines().find_map(|line| line.strip_prefix(&name));
    value.parse::<u64>().unwrap() + v6.map_or(0, |v6| v6.trim().parse::<u64>().unwrap())
}

/// The same on nodes a and b and in their pods.
fn wrong(net: &Net) -> u64 {
    let places = net.nodes[..2].iter().flat_map(|n| [&n.netns, &n.pod]);
    let of_both = places.map(|netns| wrong_in(netns, "Tcp") + wrong_in(netns, "Udp"));
    of_both.sum()
}

/// Sends `BYTES` to the server, which sends them back.
fn there_and_back(from: &Netns, to: &str) {
    let to = to.parse().unwrap();
    let mut stream = from.enter(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0];
    while greeting != *b"\n" {
        stream.read_exact(&mut greeting).unwrap();
    }
    let sent: Vec<u8> = (0..BYTES).map(|n| u8::try_from(n % 251).unwrap()).collect();
    stream.write_all(&sent).unwrap();
    let mut back = vec![0; BYTES];
    stream.read_exact(&mut back).unwrap();
    assert!(back == sent, "the bytes have changed on their way");
}

/// Node a, its pod and the world, as far as it has an address of `family`, use the Service.
fn use_service(net: &Net, underlay: Stack, family: Family) {
    let [a, b, _] = &net.nodes[..] else { panic!() };
    let service = SERVICE[usize::from(family == Family::V6)];
    let pod = pod_ip(1, family, 5);
    let _tcp = b.pod.serve(Protocol::Tcp, &at(&pod, 80), "b");
    let _udp = b.pod.serve(Protocol::Udp, &at(&pod, 53), "b");
    let world = underlay.families().contains(&family).then_some(&net.world);
    for from in [&a.netns, &a.pod].into_iter().chain(world) {
        there_and_back(from, &at(service, 80));
        for (protocol, port) in [(Protocol::Tcp, 80), (Protocol::Udp, 53)] {
            let answer = from.ask(protocol, &at(service, port)).unwrap();
            // Not the client's own address: the inner packet was translated.
            assert_eq!(answer.client.ip().to_string(), pod_ip(0, family, 1));
        }
    }
}

#[test]
fn case_69_what_is_masqueraded_arrives_with_right_checksums_and_offload_on() {
    if !require_root() {
        return;
    }
    for (underlay, mark) in [
        (Stack::V4, Mark::Stays),
        (Stack::V4, Mark::TakenOff),
        (Stack::V6, Mark::TakenOff),
    ] {
        let net = net(underlay, mark);
        for family in [Family::V4, Family::V6] {
            use_service(&net, underlay, family);
        }
        assert_eq!(wrong(&net), 0, "{underlay:?} {mark:?}");
        let outer = outer_translations(&net.nodes[0].netns);
        // Two connections and a datagram of each client, at least of the node and its pod.
        assert_eq!(
            outer >= 2 * 2 * 3,
            mark == Mark::Stays,
            "{underlay:?}: {outer}"
        );
        assert!(outer == 0 || mark == Mark::Stays, "{underlay:?}: {outer}");
    }
}

#[test]
fn a_wrong_outer_checksum_as_old_kernels_made_it_would_be_seen() {
    if !require_root() {
        return;
    }
    let net = net(Stack::V4, Mark::Stays);
    let [a, b, _] = &net.nodes[..] else { panic!() };
    let address = at(&pod_ip(1, Family::V4, 5), 53);
    let _server = b.pod.serve(Protocol::Udp, &address, "b");
    let ask = || a.netns.ask(Protocol::Udp, &at(SERVICE[0], 53));
    assert_eq!(ask().unwrap().name, "b");
    assert_eq!(wrong(&net), 0);
    // In place of the zero that says that there is none.
    nft(
        &a.netns,
        &[
            "add chain inet proxy old { type filter hook postrouting priority 300; }",
            "add rule inet proxy old udp dport 8472 udp checksum set 0x1234",
        ],
    );
    let lost = ask().unwrap_err();
    assert_eq!(lost.kind(), std::io::ErrorKind::TimedOut, "{lost}");
    assert_ne!(wrong_in(&b.netns, "Udp"), 0);
    nft(&a.netns, &["flush chain inet proxy old"]);
    // The inner one, which is filled in late, from what it says of the addresses.
    nft(
        &a.netns,
        &["add rule inet proxy old oifname seaway.vx udp dport 53 udp checksum set 0x1234"],
    );
    let before = wrong_in(&b.pod, "Udp");
    assert!(ask().is_err());
    assert_ne!(wrong_in(&b.pod, "Udp"), before);
    nft(&a.netns, &["flush chain inet proxy old"]);
    assert_eq!(ask().unwrap().name, "b");
}
