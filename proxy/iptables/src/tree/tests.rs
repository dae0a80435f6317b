//! Walks the rules as the kernel does.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use seaway_proxy_core::desired::FrontendKind;

use super::*;

mod depth;

fn frontend(addr: Ipv4Addr, port: u16, protocol: Protocol) -> Frontend {
    at(addr.into(), port, protocol)
}

fn at(addr: IpAddr, port: u16, protocol: Protocol) -> Frontend {
    Frontend {
        addr,
        port,
        protocol,
        kind: FrontendKind::ClusterIp,
    }
}

fn table(frontends: &BTreeSet<Frontend>) -> Table {
    let mut table = Table::default();
    let entry = |f: &Frontend| {
        let addr = f.addr;
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        let protocol = f.protocol.to_string().to_lowercase();
        let rule = format!(
            "-d {addr}/{bits} -p {protocol} -m {protocol} --dport {} -j {f}",
            f.port
        );
        (Key::frontend(f), rule)
    };
    build(
        &mut table,
        "ROOT",
        "NET-",
        frontends.iter().map(entry).collect(),
    );
    table
}

/// Whether a packet fulfils a rule's conditions, and where the rule leads.
fn matches<'a>(rule: &'a str, packet: &Frontend) -> Option<&'a str> {
    let mut words = rule.split(' ');
    let mut target = None;
    while let Some(option) = words.next() {
        let value = words.next().unwrap();
        let fits = match option {
            "-d" => value
                .parse::<ipnetwork::IpNetwork>()
                .unwrap()
                .contains(packet.addr),
            "-p" | "-m" => value.eq_ignore_ascii_case(&packet.protocol.to_string()),
            "--dport" => {
                let (from, to) = value.split_once(':').unwrap_or((value, value));
                (from.parse().unwrap()..=to.parse().unwrap()).contains(&packet.port)
            }
            "-g" | "-j" => {
                target = Some(value);
                true
            }
            _ => panic!("unknown option {option} in {rule}"),
        };
        if !fits {
            return None;
        }
    }
    target
}

/// The target that a packet reaches, if any, and how many rules it is held
/// against on its way.
fn walk(table: &Table, packet: &Frontend) -> (Option<String>, usize) {
    let mut chain = "ROOT".to_owned();
    let mut rules = 0;
    loop {
        let mut next = None;
        let prefix = format!("-A {chain} ");
        let lines: Vec<String> = table.chains[&chain].lines(&chain).collect();
        for line in &lines {
            rules += 1;
            next = matches(line.strip_prefix(&prefix).unwrap(), packet).map(str::to_owned);
            if next.is_some() {
                break;
            }
        }
        match next {
            Some(inner) if inner.starts_with("NET-") => chain = inner,
            target => return (target, rules),
        }
    }
}

/// How many inner nodes a way has when it comes to each chain, that one included.
fn depths(table: &Table) -> BTreeMap<String, usize> {
    let root = "ROOT".to_owned();
    let (mut depths, mut next) = (BTreeMap::from([(root.clone(), 0)]), vec![root]);
    while let Some(chain) = next.pop() {
        let depth = depths[&chain] + 1;
        for line in table.chains[&chain].lines(&chain) {
            if let Some((_, inner)) = line.split_once(" -g ") {
                depths.insert(inner.to_owned(), depth);
                next.push(inner.to_owned());
            }
        }
    }
    depths
}

/// The chains that are deeper than the kernel takes, and those that could be divided and hold
/// too much.
fn misshapen(table: &Table) -> Vec<String> {
    let mut depths = depths(table);
    depths.retain(|chain, depth| {
        *depth > DEPTH || (*depth < DEPTH && table.chains[chain].rules() > FANOUT)
    });
    depths.into_keys().collect()
}

fn longest_walk(frontends: &BTreeSet<Frontend>) -> usize {
    let table = table(frontends);
    let lengths = frontends.iter().map(|f| {
        let (target, rules) = walk(&table, f);
        assert_eq!(target, Some(f.to_string()));
        rules
    });
    lengths.max().unwrap()
}

/// Addresses, ports and protocols that are near each other or far away.
fn any_frontend() -> impl Strategy<Value = Frontend> {
    let addr = prop_oneof![
        any::<u32>(),
        (0..64u32).prop_map(|low| 0x0a60_0000 + low),
        Just(0x0a60_0001),
    ];
    let port = prop_oneof![1..=u16::MAX, 1..=40u16];
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (addr, port, protocol).prop_map(|(addr, port, protocol)| frontend(addr.into(), port, protocol))
}

proptest! {
    #[test]
    fn every_frontend_is_reached_and_nothing_else(
        frontends in proptest::collection::btree_set(any_frontend(), 0..300),
        strangers in proptest::collection::vec(any_frontend(), 20),
    ) {
        let table = table(&frontends);
        for f in &frontends {
            let (target, rules) = walk(&table, f);
            prop_assert_eq!(target, Some(f.to_string()));
            prop_assert!(rules <= FANOUT * NIBBLES);
        }
        for stranger in strangers.iter().filter(|s| !frontends.contains(s)) {
            prop_assert_eq!(walk(&table, stranger).0, None);
        }
        // Each leaf once, each inner chain led to once, none too full.
        let rules: Vec<String> = table.chains.values().flat_map(|body| body.lines("")).collect();
        prop_assert_eq!(rules.iter().filter(|r| r.contains(" -j ")).count(), frontends.len());
        let inner: BTreeSet<&str> =
            rules.iter().filter_map(|r| r.split_once(" -g ").map(|(_, chain)| chain)).collect();
        prop_assert_eq!(inner.len(), table.chains.len() - 1);
        prop_assert_eq!(misshapen(&table), [""; 0]);
    }

    #[test]
    fn a_new_frontend_changes_its_own_path_only(
        frontends in proptest::collection::btree_set(any_frontend(), 1..300),
        new in any_frontend(),
    ) {
        let before = table(&frontends);
        let mut more = frontends.clone();
        more.insert(new);
        let after = table(&more);
        let changed = after.chains.iter().filter(|(c, body)| before.chains.get(*c) != Some(body));
        // The chain that it was put into, which may now be divided.
        prop_assert!(changed.count() <= FANOUT + 2);
    }
}

#[test]
fn the_walk_hardly_grows() {
    let services = |count: u32| -> BTreeSet<Frontend> {
        (0..count)
            .map(|i| frontend((0x0a60_0000 + i).into(), 80, Protocol::Tcp))
            .collect()
    };
    assert!(longest_walk(&services(16)) <= 16);
    assert!(longest_walk(&services(250)) <= 32);
    assert!(longest_walk(&services(10_000)) <= 64);
    assert!(longest_walk(&services(60_000)) <= 64);
    let one_address: BTreeSet<Frontend> = (1..=4_000)
        .map(|port| frontend(Ipv4Addr::new(10, 96, 0, 1), port, Protocol::Udp))
        .collect();
    assert!(longest_walk(&one_address) <= 48);
}

#[test]
fn conditions_in_the_words_of_iptables() {
    let f = frontend(Ipv4Addr::new(10, 96, 17, 255), 0x1234, Protocol::Udp);
    let key = Key::frontend(&f);
    let shown: Vec<String> = [1, 5, 8, 9, 10, 12]
        .map(|n| key.prefix(n).to_string())
        .into();
    assert_eq!(
        shown,
        [
            "-d 0.0.0.0/4",
            "-d 10.96.16.0/20",
            "-d 10.96.17.255/32",
            "-d 10.96.17.255/32 -p udp",
            "-d 10.96.17.255/32 -p udp -m udp --dport 4096:8191",
            "-d 10.96.17.255/32 -p udp -m udp --dport 4656:4671",
        ]
    );
    assert_eq!(key.prefix(12).name(), "0A6011FF1123");

    let port = Key::port(Protocol::Sctp, 0x1234);
    let shown: Vec<String> = [1, 3].map(|n| port.prefix(n).to_string()).into();
    assert_eq!(shown, ["-p sctp", "-p sctp -m sctp --dport 4608:4863"]);

    let v6 = Key::addr("fd00:1234::ff".parse().unwrap());
    let shown: Vec<String> = [3, 8, 31, 32].map(|n| v6.prefix(n).to_string()).into();
    assert_eq!(
        shown,
        [
            "-d fd00::/12",
            "-d fd00:1234::/32",
            "-d fd00:1234::f0/124",
            "-d fd00:1234::ff/128",
        ]
    );
    assert_eq!(v6.prefix(8).name(), "FD001234");
    assert_eq!(v6.prefix(32).name().len(), 16, "a hash");
    assert_ne!(v6.prefix(32).name(), v6.prefix(31).name());
}
