//! The pod network between two daemons: which path packets take, and what happens when
//! something changes under way.

use std::time::{Duration, Instant};

use crate::node::CONF;
use crate::pair::{Pair, api_node, drop_pod_addresses, pass_pod_addresses, plug};
use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};

/// Within three seconds, and what a machine adds on which another test kills daemons.
const REPAIRED: Duration = Duration::from_secs(10);
const TO_B: &str = "10.244.1.0/24";
const POD_B: &str = "10.244.1.5:80";
const OVERLAY: &str = "via 10.244.1.1 dev seaway.vx";
const DIRECT: &str = "via 172.30.0.12 dev eth0";

/// A change of this node's own side: it asks again at once, not in 30 s.
fn poke(pair: &Pair, mtu: u32) {
    for member in &pair.members {
        member.node.netns.ip(&format!("link set eth0 mtu {mtu}"));
    }
}

#[test]
fn on_a_cloud_that_drops_pod_addresses_it_stays_on_the_overlay_until_they_pass() {
    if !require_root() {
        return;
    }
    let pair = Pair::start_behind(&[], drop_pod_addresses);
    pair.a().wait_route(TO_B, OVERLAY);
    pair.b()
        .wait_route("10.244.0.0/24", "via 10.244.0.1 dev seaway.vx");
    pair.assert_reaches(POD_B);
    pair.a().daemon.wait("a failed probe", || {
        pair.a().metric("seaway_pod_network_probe_failures_total") >= 1.0
    });
    assert!(pair.a().route(TO_B).contains(OVERLAY));
    assert!(
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"vxlan\"}")
            > 0.5
    );

    pass_pod_addresses(&pair.fabric);
    poke(&pair, 1400);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    pair.assert_reaches(POD_B);
    assert!(
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"direct\"}")
            > 0.5
    );
    assert_eq!(
        pair.a()
            .daemon
            .said(&["Pod addresses pass without the overlay", "b/IPv4"]),
        1
    );
    // The reserved address is what the node itself asks pods from.
    assert!(pair.a().route(TO_B).contains("src 10.244.0.1"));
}

#[test]
fn a_path_that_begins_to_drop_is_left_within_seconds_and_taken_again() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&[]);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    drop_pod_addresses(&pair.fabric);
    let broken = Instant::now();
    pair.a().wait_route(TO_B, OVERLAY);
    pair.b().wait_route("10.244.0.0/24", "dev seaway.vx");
    let took = broken.elapsed();
    // Nine, and what a machine adds on which others kill daemons.
    assert!(took < Duration::from_secs(20), "{took:?}");
    pair.assert_reaches(POD_B);
    assert_eq!(
        pair.a()
            .daemon
            .said(&["WARN", "Pod addresses do not pass any more", "b/IPv4"]),
        1
    );
    pass_pod_addresses(&pair.fabric);
    poke(&pair, 1400);
    pair.a().wait_route(TO_B, DIRECT);
    pair.assert_reaches(POD_B);
}

#[test]
fn a_restart_keeps_the_paths_that_were_proven() {
    if !require_root() {
        return;
    }
    let mut pair = Pair::start(&[]);
    pair.a().wait_route(TO_B, DIRECT);
    pair.b()
        .wait_route("10.244.0.0/24", "via 172.30.0.11 dev eth0");
    let log = pair.a().node.path("moves");
    let moves = std::fs::File::create(&log).unwrap();
    let mut watch = pair.a().node.netns.command("ip");
    let mut watch = watch
        .args(["monitor", "route"])
        .stdout(moves)
        .spawn()
        .unwrap();
    pair.restart_a(&[]);
    pair.a().daemon.wait_said(&["Found the uplink"]);
    pair.a().daemon.wait("a probe", || {
        pair.a()
            .metric("seaway_pod_network_peer_routes{path=\"direct\"}")
            > 0.5
    });
    // Whatever was going to change has changed when a Node that comes now has its route.
    pair.apply(&api_node("new", &["172.30.0.77"], &["10.244.9.0/24"]));
    pair.a().wait_route("10.244.9.0/24", "dev seaway.vx");
    let read = || std::fs::read_to_string(&log).unwrap();
    let a = &pair.a().daemon;
    a.wait("the monitor", || read().contains("10.244.9.0/24"));
    watch.kill().unwrap();
    watch.wait().unwrap();
    let moves = read();
    assert!(!moves.contains(TO_B), "{moves}\n{}", pair.logs());
    assert!(moves.contains("10.244.9.0/24"), "{moves}");
    assert!(pair.a().route(TO_B).contains(DIRECT));
}

#[test]
fn both_families_go_direct_each_by_its_own_proof() {
    if !require_root() {
        return;
    }
    let pair = Pair::start_dual(&[]);
    let v6 = ("fd00:244:0:1::/64", "[fd00:244:0:1::5]:80");
    pair.a().wait_route(TO_B, DIRECT);
    pair.a().wait_route(v6.0, "via fd00:30::12 dev eth0");
    pair.b()
        .wait_route("fd00:244::/64", "via fd00:30::11 dev eth0");
    pair.assert_reaches(POD_B);
    pair.assert_reaches(v6.1);
    let ranges = &pair.a().conf()["ipam"]["ranges"];
    assert_eq!(ranges[0]["subnet"], "10.244.0.0/24");
    assert_eq!(ranges[1]["subnet"], "fd00:244::/64");
    assert_eq!(pair.a().node.get("/healthz").unwrap().0, 200);
}

#[test]
fn what_somebody_removes_is_back_within_two_seconds() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    a.wait_route(TO_B, OVERLAY);
    pair.b().wait_route("10.244.0.0/24", "dev seaway.vx");
    pair.assert_reaches(POD_B);
    for removal in [
        "route del 10.244.1.0/24",
        "link del seaway.vx",
        "addr del 10.244.0.1/32 dev seaway.vx",
        "link set seaway.vx down",
        "route replace 10.244.1.0/24 via 172.30.0.99 proto static metric 0",
    ] {
        let before = a.metric("seaway_pod_network_repairs_total");
        a.node.netns.ip(removal);
        let removed = Instant::now();
        if removal.contains("static") {
            // A foreign route stays, is named, and ours is back when it has gone.
            a.daemon
                .wait_said(&["WARN", "somebody else has a route", TO_B]);
            a.node.netns.ip("route del 10.244.1.0/24 proto static");
            a.wait_route(TO_B, OVERLAY);
            continue;
        }
        a.daemon.wait(removal, || {
            a.route(TO_B).contains(OVERLAY) && a.metric("seaway_pod_network_repairs_total") > before
        });
        let took = removed.elapsed();
        assert!(took < REPAIRED, "{removal}: {took:?}");
        pair.assert_reaches(POD_B);
    }
    assert!(
        a.daemon.said(&["WARN", "repaired it"]) >= 4,
        "{}",
        a.daemon.log()
    );
}

#[test]
fn entries_and_forwarding_that_somebody_removes_are_back_within_three_seconds() {
    if !require_root() {
        return;
    }
    let pair = Pair::start_dual(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    let to_b = [(TO_B, POD_B), ("fd00:244:0:1::/64", "[fd00:244:0:1::5]:80")];
    for (range, pod) in to_b {
        a.wait_route(range, "dev seaway.vx");
        // New links have to find out first whether their own addresses are free.
        a.daemon.wait(pod, || a.pod.ask(Tcp, pod).is_ok());
    }
    let netns = &a.node.netns;
    let remote = "172.30.0.12";
    let entries = || netns.must_run(&["bridge", "fdb", "show", "dev", "seaway.vx"]);
    let mac = entries().split(' ').next().unwrap().to_owned();
    let removals: [(&[&str], &dyn Fn() -> bool); 5] = [
        (&["bridge", "fdb", "del", &mac, "dev", "seaway.vx"], &|| {
            entries().contains(remote)
        }),
        (
            &[
                "ip",
                "-6",
                "neigh",
                "flush",
                "dev",
                "seaway.vx",
                "nud",
                "permanent",
            ],
            &|| {
                netns
                    .ip("-6 neigh show dev seaway.vx nud permanent")
                    .contains(&mac)
            },
        ),
        (
            &[
                "ip",
                "-4",
                "neigh",
                "flush",
                "dev",
                "seaway.vx",
                "nud",
                "permanent",
            ],
            &|| {
                netns
                    .ip("-4 neigh show dev seaway.vx nud permanent")
                    .contains(&mac)
            },
        ),
        (&["sysctl", "-qw", "net.ipv4.ip_forward=0"], &|| {
            netns.must_run(&["cat", "/proc/sys/net/ipv4/ip_forward"]) == "1\n"
        }),
        (
            &["sysctl", "-qw", "net.ipv6.conf.all.forwarding=0"],
            &|| netns.must_run(&["cat", "/proc/sys/net/ipv6/conf/all/forwarding"]) == "1\n",
        ),
    ];
    for (removal, is_back) in removals {
        netns.must_run(removal);
        let removed = Instant::now();
        assert!(!is_back(), "{removal:?} removes nothing");
        a.daemon.wait(&removal.join(" "), is_back);
        let took = removed.elapsed();
        assert!(took < REPAIRED, "{removal:?}: {took:?}");
        for (_, pod) in to_b {
            pair.assert_reaches(pod);
        }
    }
}

/// How often the daemon's threads have gone to sleep.
fn naps(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let line = "voluntary_ctxt_switches:";
        let count = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        count.trim().parse::<u64>().unwrap()
    };
    threads
        .map(|thread| of_thread(thread.unwrap().path()))
        .sum()
}

#[test]
fn the_neighbours_of_other_links_do_not_wake_the_daemon() {
    const CHANGES: usize = 5000;
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    a.wait_route(TO_B, OVERLAY);
    // A repair shows that the daemon listens, with what it is to hear of chosen.
    a.node.netns.ip("neigh flush dev seaway.vx nud permanent");
    a.daemon.wait_said(&["WARN", "repaired it"]);
    let woken_by = |dev: &str| {
        let change = format!(
            "neigh replace 172.30.0.99 lladdr 02:00:00:00:00:99 dev {dev} nud reachable\n\
             neigh del 172.30.0.99 dev {dev}\n"
        );
        let file = a.node.path("batch");
        std::fs::write(&file, change.repeat(CHANGES / 2)).unwrap();
        let before = naps(a.daemon.pid());
        a.node.netns.ip(&format!("-batch {}", file.display()));
        naps(a.daemon.pid()) - before
    };
    let (others, own) = (woken_by("eth0"), woken_by("seaway.vx"));
    println!(
        "{CHANGES} changes: {others} wake-ups by those of another link, {own} by the overlay's"
    );
    // The overlay's are many on an idle machine, and few while a round is being waited for.
    assert!(others < 500, "{others}");
}

#[test]
fn a_foreign_ipv6_route_that_wins_over_ours_is_told_and_counts_as_a_failure() {
    if !require_root() {
        return;
    }
    let to_b = "fd00:244:0:1::/64";
    for (verb, metric) in [("add", 512), ("append", 1024)] {
        let pair = Pair::start_dual(&["--pod-routes", "vxlan"]);
        let a = pair.a();
        a.wait_route(to_b, "dev seaway.vx");
        let failures = || a.metric("seaway_pod_network_sync_failures_total");
        let before = failures();
        let foreign = format!("-6 route {verb} {to_b} via fd00:30::99 metric {metric}");
        a.node.netns.ip(&foreign);
        a.daemon
            .wait_said(&["WARN", "somebody else has a route", to_b]);
        a.daemon
            .wait("a failure that counts", || failures() > before);
        // Neither is taken away.
        assert!(a.route(to_b).contains("dev seaway.vx"));
        assert!(a.route(to_b).contains("via fd00:30::99"));
    }
}

#[test]
fn a_foreign_chain_that_drops_what_is_forwarded_is_named_once_and_counted() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&["--pod-routes", "vxlan"]);
    let a = pair.a();
    let metric = || a.metric("seaway_pod_network_foreign_drop_chains");
    let nft = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        a.node.netns.must_run(&[&["nft"], &words[..]].concat());
    };
    assert!(metric() < 0.5);
    nft("add table inet guard");
    nft("add chain inet guard fw { type filter hook forward priority 0; policy drop; }");
    let named = ["WARN", "family=\"inet\"", "table=\"guard\"", "chain=\"fw\""];
    a.daemon.wait_said(&named);
    a.daemon.wait("the metric", || metric() > 0.5);
    // More of the same is no news, and who lets pods pass is still told of.
    nft("add rule inet guard fw ip saddr 10.244.0.0/16 accept");
    nft("add chain inet guard in { type filter hook input priority 0; policy accept; }");
    nft("delete table inet guard");
    a.daemon.wait("no such chain", || metric() < 0.5);
    assert_eq!(a.daemon.said(&named), 1, "{}", a.daemon.log());
}

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
fn a_node_with_another_cni_is_reached_directly_and_hurts_nobody() {
    if !require_root() {
        return;
    }
    let pair = Pair::start(&[]);
    // A bridge plugin's node: its gateway is the first address of its range, and its
    // routes are somebody's plain ones.
    let other = Netns::new("other");
    plug(&pair.fabric, &other, &["172.30.0.13/24".to_owned()]);
    other.ip("link add cni0 type bridge");
    other.ip("addr add 10.244.2.1/24 dev cni0");
    other.ip("link set cni0 up");
    other.sysctl("ipv4/ip_forward", "1");
    other.ip("route add 10.244.0.0/24 via 172.30.0.11");
    other.ip("route add 10.244.1.0/24 via 172.30.0.12");
    pair.apply(&api_node("other", &["172.30.0.13"], &["10.244.2.0/24"]));
    pair.a()
        .wait_route("10.244.2.0/24", "via 172.30.0.13 dev eth0");
    pair.a().wait_route(TO_B, DIRECT);
    pair.assert_reaches(POD_B);
    let _server = other.serve(Tcp, "10.244.2.1:80", "other");
    assert_eq!(pair.a().pod.ask_tcp("10.244.2.1:80").unwrap(), "other");
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
