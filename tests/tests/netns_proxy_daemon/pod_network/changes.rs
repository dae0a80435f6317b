//! Other addresses, ranges, sizes and uplinks of nodes under way.

use seaway_testbed::require_root;

use super::{OVERLAY, POD_B, TO_B};
use crate::node::CONF;
use crate::pair::{Pair, api_node};

#[test]
fn other_addresses_and_ranges_of_nodes_are_followed_live() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    a.wait_route(TO_B, OVERLAY);
    // b gets another address.
    let b = &pair.b().node.netns;
    b.ip("addr del 172.30.0.12/24 dev eth0");
    b.ip("addr add 172.30.0.22/24 dev eth0");
    pair.apply(&api_node("b", &["172.30.0.22"], &[TO_B]));
    pair.b().daemon.wait("an overlay from the new address", || {
        // Another local address makes it another device.
        let shown = b.run(&["ip", "-d", "link", "show", "seaway.vx"]).stdout;
        String::from_utf8_lossy(&shown).contains("local 172.30.0.22")
    });
    a.daemon.wait("an overlay to the new address", || {
        let entries = a
            .node
            .netns
            .must_run(&["bridge", "fdb", "show", "dev", "seaway.vx"]);
        entries.contains("dst 172.30.0.22") && !entries.contains("dst 172.30.0.12")
    });
    pair.assert_reaches(POD_B);
    // b is made anew with another range, and a stranger comes that answers nothing.
    pair.apply(&api_node("b", &["172.30.0.22"], &["10.244.7.0/24"]));
    pair.apply(&api_node("stranger", &["172.30.0.77"], &["10.244.9.0/24"]));
    a.wait_route("10.244.7.0/24", "via 10.244.7.1 dev seaway.vx");
    a.wait_route("10.244.9.0/24", "via 10.244.9.1 dev seaway.vx");
    assert_eq!(a.route(TO_B), "");
    pair.b().daemon.wait("the new range in the conf", || {
        pair.b().conf()["ipam"]["ranges"][0]["subnet"] == "10.244.7.0/24"
    });
}

#[test]
fn an_mtu_that_changes_is_passed_on_to_the_overlay_and_new_pods() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    assert_eq!(
        (a.mtu_of("seaway.vx"), &a.conf()["mtu"]),
        (1450, &1450.into())
    );
    a.node.netns.ip("link set eth0 mtu 1400");
    a.daemon.wait("the narrower overlay", || {
        a.mtu_of("seaway.vx") == 1350 && a.conf()["mtu"] == 1350
    });
    a.node.netns.ip("link set eth0 mtu 1500");
    a.daemon.wait("the wider overlay", || {
        a.mtu_of("seaway.vx") == 1450 && a.conf()["mtu"] == 1450
    });
    assert!(a.node.path(CONF).exists());
}

#[test]
fn a_range_outside_of_the_cluster_and_an_uplink_that_is_none_are_told() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    pair.apply(&api_node("a", &["172.30.0.11"], &["10.245.0.0/24"]));
    let a = pair.a();
    a.daemon
        .wait_said(&["WARN", "10.245.0.0/24", "--cluster-cidr"]);
    let pair = Pair::start(&["--uplink", "eth0"]);
    let b = pair.b();
    b.daemon
        .wait_said(&["Found the uplink", "named by --uplink"]);
    b.node.netns.ip("link set eth0 down");
    b.node.netns.ip("link set eth0 name eth7");
    b.node.netns.ip("link set eth7 up");
    b.daemon
        .wait_said(&["Cannot program the pod network", "--uplink eth0"]);
}
