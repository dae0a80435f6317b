//! What somebody takes from the pod network is back within seconds, and what others do beside it
//! wakes nobody.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::require_root;

use super::{OVERLAY, POD_B, TO_B};
use crate::pair::Pair;

/// Within three seconds, and what a machine adds on which another test kills daemons. Without a
/// notice the next round comes 30 s after the last one, which here is the repair before.
const REPAIRED: Duration = Duration::from_secs(20);

const REPAIRS: &str = "seaway_pod_network_repairs_total";

#[test]
fn what_somebody_removes_is_back_before_the_next_round() {
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
        let before = a.metric(REPAIRS);
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
            a.route(TO_B).contains(OVERLAY) && a.metric(REPAIRS) > before
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
fn entries_and_forwarding_that_somebody_removes_are_back_before_the_next_round() {
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
        let before = a.metric(REPAIRS);
        netns.must_run(removal);
        let removed = Instant::now();
        // It may be back before anybody could look; what removes nothing is never repaired.
        a.daemon.wait(&removal.join(" "), || {
            is_back() && a.metric(REPAIRS) > before
        });
        let took = removed.elapsed();
        assert!(took < REPAIRED, "{removal:?}: {took:?}");
        for (_, pod) in to_b {
            pair.assert_reaches(pod);
        }
    }
}

/// How often each of the daemon's threads has gone to sleep, by its number.
fn naps(pid: u32) -> BTreeMap<OsString, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let thread = thread.unwrap();
        // One that has ended since it was listed has none.
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = "voluntary_ctxt_switches:";
        let count = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        Some((thread.file_name(), count.trim().parse::<u64>().unwrap()))
    };
    threads.filter_map(of_thread).collect()
}

/// How often threads have gone to sleep since `before`, but for those that have ended.
fn naps_since(before: &BTreeMap<OsString, u64>, pid: u32) -> u64 {
    let count = |thread: &OsString| before.get(thread).copied().unwrap_or(0);
    let after = naps(pid);
    let more = after
        .iter()
        .map(|(thread, n)| n.saturating_sub(count(thread)));
    more.sum()
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
        naps_since(&before, a.daemon.pid())
    };
    let (others, own) = (woken_by("eth0"), woken_by("seaway.vx"));
    println!(
        "{CHANGES} changes: {others} wake-ups by those of another link, {own} by the overlay's"
    );
    // The overlay's are many on an idle machine, and few while a round is being waited for.
    assert!(others < 500, "{others}");
}
