//! Whose address the world sees.

use crate::pair::{Pair, plug};
use crate::pools::{at, seen};
use seaway_testbed::peer::Protocol::{Tcp, Udp};
use seaway_testbed::{Netns, require_root};

#[test]
fn ranges_that_the_operator_names_see_pods_addresses_of_both_families() {
    if !require_root() {
        return;
    }
    let spared = ["--non-masquerade-cidr", "192.0.2.0/24,fd00:77::/64"];
    let pair = Pair::start_dual(&spared);
    let (a, world) = (pair.a(), Netns::new("world"));
    plug(
        &pair.fabric,
        &world,
        &["172.30.0.99/24".to_owned(), "fd00:30::99/64".to_owned()],
    );
    // In the ranges, and next to them.
    let addresses = ["192.0.2.1", "fd00:77::1", "198.51.100.1", "fd00:78::1"];
    for ip in addresses {
        let (length, nodad) = if ip.contains(':') {
            (128, "nodad")
        } else {
            (32, "")
        };
        world.ip(&format!("addr add {ip}/{length} dev lo {nodad}"));
    }
    a.node.netns.ip("route add default via 172.30.0.99");
    a.node.netns.ip("-6 route add default via fd00:30::99");
    // It answers pods by their own addresses.
    world.ip("route add 10.244.0.0/24 via 172.30.0.11");
    world.ip("-6 route add fd00:244::/64 via fd00:30::11");
    for (ip, expect) in
        addresses
            .into_iter()
            .zip(["10.244.0.5", "fd00:244::5", "172.30.0.11", "fd00:30::11"])
    {
        for (protocol, port) in [(Tcp, 80), (Udp, 53)] {
            let _server = world.serve(protocol, &at(ip, port), "world");
            assert_eq!(seen(&pair, &a.pod, protocol, &at(ip, port)), expect, "{ip}");
        }
    }
}
