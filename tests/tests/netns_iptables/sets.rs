//! What becomes of affinity when somebody empties, replaces or fills the sets of clients.
//! The kernel tells nobody of that.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use seaway_proxy_core::desired::DesiredState;
use seaway_testbed::peer::{PATIENCE, Protocol};
use seaway_testbed::{Netns, XTABLES_WAIT, uninterrupted, wait_until};

use crate::dual::{VIP_V6, both, node};
use crate::node::{Node, VIP, answers, each_flavour, names, web};

/// The Services of two pods, whose clients come back for three hours, in both families.
fn sticky() -> DesiredState {
    let mut desired = web(2);
    for port in desired.v4.services.values_mut() {
        port.affinity = Some(Duration::from_hours(3));
    }
    both(desired)
}

/// The one that answers every datagram.
#[track_caller]
fn only(from: &Netns, address: &str) -> String {
    let answers = answers(from, Protocol::Udp, address);
    let names = names(&answers);
    let all: Vec<&str> = answers.iter().map(|answer| answer.name.as_str()).collect();
    assert_eq!(names.len(), 1, "{address}: {all:?}");
    names.into_iter().next().unwrap().to_owned()
}

/// How the sets were made, but for the number that each kernel chooses for itself.
fn sets(n: &Node) -> BTreeSet<String> {
    let listed = n
        .host
        .must_run(&["ipset", "list", "-terse", "-output", "save"]);
    let made = listed.lines().filter(|line| line.starts_with("create "));
    made.map(|line| line.split(" initval ").next().unwrap().to_owned())
        .collect()
}

/// Who is remembered, and in which set.
fn remembered(n: &Node) -> BTreeMap<String, String> {
    let dump = n.host.must_run(&["ipset", "save"]);
    let mut found = BTreeMap::new();
    for entry in dump.lines().filter_map(|line| line.strip_prefix("add ")) {
        let mut words = entry.split(' ').map(str::to_owned);
        let (set, client) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(found.insert(client, set), None, "in two sets: {entry}");
    }
    found
}

/// Puts one of somebody else's making in the place of each set, as `ipset swap` does it.
fn replace_all(n: &Node, kind: impl Fn(usize) -> &'static str) {
    for (i, made) in sets(n).iter().enumerate() {
        let name = made.split(' ').nth(1).unwrap();
        let family = if name.starts_with("SEAWAY-6-") {
            "inet6"
        } else {
            "inet"
        };
        let script = format!(
            "ipset restore <<'END'\n\
             create spare hash:ip family {family} {}\nswap spare {name}\ndestroy spare\nEND",
            kind(i)
        );
        n.host.must_run(&["sh", "-c", &script]);
    }
}

#[test]
fn clients_of_a_set_that_somebody_empties_are_remembered_again() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&sticky());
        for vip in [VIP, VIP_V6] {
            only(&n.client, vip);
        }
        assert_eq!(remembered(&n).len(), 2);
        n.host.must_run(&["ipset", "flush"]);
        // A client may come upon a port that it has had, whose flow goes on.
        n.host.must_run(&["conntrack", "-F"]);
        assert!(remembered(&n).is_empty());
        assert!(!n.sync(&sticky()), "who is in a set is not ours to know");
        for vip in [VIP, VIP_V6] {
            only(&n.client, vip);
        }
        assert_eq!(remembered(&n).len(), 2);
    });
}

#[test]
fn a_set_that_somebody_replaces_is_made_anew_under_the_rules_that_look_into_it() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&sticky());
        let made = sets(&n);
        assert_eq!(made.len(), 8, "{made:?}");
        let kinds = ["timeout 7", "timeout 7 maxelem 5", ""];
        replace_all(&n, |i| kinds[i % kinds.len()]);
        assert!(sets(&n).is_disjoint(&made), "{:?}", sets(&n));
        let rules = n.dump(flavour);
        assert!(n.sync(&sticky()), "the next reading finds it");
        assert_eq!(sets(&n), made);
        assert_eq!(n.dump(flavour), rules, "no rule had to be written");
        assert!(!n.sync(&sticky()), "a second round finds nothing to do");
        for vip in [VIP, VIP_V6] {
            only(&n.client, vip);
        }
        assert_eq!(remembered(&n).len(), 2);
        n.remove_all();
        assert!(sets(&n).is_empty(), "{:?}", sets(&n));
    });
}

/// A set of another kind cannot be replaced while rules look into it.
#[test]
fn a_set_that_cannot_be_replaced_keeps_no_other_from_it_and_no_rule_from_being_written() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&sticky());
        let made = sets(&n);
        n.sync(&DesiredState::default());
        let odd = made.iter().next().unwrap().split(' ').nth(1).unwrap();
        n.host
            .must_run(&["ipset", "create", odd, "hash:net", "timeout", "7"]);
        n.sync(&sticky());
        let there = sets(&n);
        assert_eq!(there.len(), made.len());
        assert_eq!(there.intersection(&made).count(), made.len() - 1);
        assert!(!n.sync(&sticky()), "what cannot be repaired is no news");
        assert_eq!(sets(&n), there, "nor is anything left of the attempt");
        for vip in [VIP, VIP_V6] {
            answers(&n.client, Protocol::Udp, vip);
        }
        n.remove_all();
        assert!(sets(&n).is_empty(), "{:?}", sets(&n));
    });
}

/// Nor is it looked for in vain at each reading.
#[test]
fn a_set_of_another_version_that_somebody_uses_stays_until_they_let_go() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        // One before it and one behind it go.
        for name in ["SEAWAY-CLIENTS-a", "SEAWAY-CLIENTS-x", "SEAWAY-CLIENTS-z"] {
            n.host
                .must_run(&["ipset", "create", name, "hash:ip", "timeout", "60"]);
        }
        let rule = |n: &Node, action: &str| {
            let rule = "PREROUTING -m set --match-set SEAWAY-CLIENTS-x src -j ACCEPT";
            let command = format!("iptables-{flavour} {XTABLES_WAIT} -t mangle {action} {rule}");
            n.host.must_run(&["sh", "-c", &command]);
        };
        rule(&n, "-A");
        let others = |n: &Node| {
            let mut sets = sets(n);
            sets.retain(|made| made.contains("SEAWAY-CLIENTS-"));
            sets
        };
        let desired = sticky();
        n.sync(&desired);
        let held = others(&n);
        assert_eq!(held.len(), 1, "{held:?}");
        assert!(!n.sync(&desired), "it is no news");
        for vip in [VIP, VIP_V6] {
            only(&n.client, vip);
        }
        rule(&n, "-D");
        // The kernel takes its time to let go of a rule.
        wait_until(Duration::from_secs(10), "the set to go", || {
            assert!(!n.sync(&desired));
            let left = others(&n);
            Ok(if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?}"))
            })
        })
        .unwrap();
        n.remove_all();
        assert!(sets(&n).is_empty(), "{:?}", sets(&n));
    });
}

/// From another address than the client's own, to which it leads the whole of 10.9.0.0/24.
fn ask_from(i: u8) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, i), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(VIP).unwrap();
    socket.send(b"?").unwrap();
    let mut answer = [0; 100];
    let length = uninterrupted(|| socket.recv(&mut answer)).unwrap();
    let text = String::from_utf8_lossy(&answer[..length]).into_owned();
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_client_that_finds_no_room_is_served_without_affinity() {
    const CLIENTS: u8 = 20;
    const ROOM: usize = 3;
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&sticky());
        // Each region of 1,024 buckets has a share of the room, and 64 of them are in one.
        replace_all(&n, |_| "hashsize 64 maxelem 3 timeout 10800");
        assert!(!n.sync(&sticky()), "of the timeout that it should have");
        n.client.ip("route add local 10.9.0.0/24 dev lo");
        n.host.ip("route add 10.9.0.0/24 via 10.244.9.2");
        // Of so many questions both endpoints get more than there is room for.
        let rounds = || {
            let clients = (1..=CLIENTS).cycle().take(10 * usize::from(CLIENTS));
            clients.map(|i| (i, ask_from(i))).collect::<Vec<_>>()
        };
        n.client.enter(rounds);
        let known = remembered(&n);
        assert_eq!(known.len(), 2 * ROOM, "{known:?}");
        let mut met = BTreeMap::<String, BTreeSet<String>>::new();
        for (i, name) in n.client.enter(rounds) {
            met.entry(format!("10.9.0.{i}")).or_default().insert(name);
        }
        assert_eq!(remembered(&n), known);
        let (kept, served): (Vec<_>, Vec<_>) = met
            .iter()
            .partition(|(client, _)| known.contains_key(*client));
        assert_eq!(kept.len(), known.len());
        for (client, names) in kept {
            assert_eq!(names.len(), 1, "{client} is remembered and met {names:?}");
        }
        // Ten times the same by chance for all of them: once in 2^126.
        let both = served.iter().filter(|(_, names)| names.len() == 2).count();
        assert!(both > 0, "{served:?}");
    });
}
