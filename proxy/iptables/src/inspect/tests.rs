//! Rules altered by hand are named; rules of other Services do not matter.

use std::net::SocketAddr;

use seaway_proxy_core::explain::kernel::{Deviation, Inspection, Subject};

use super::inspect;
use crate::rendered::Rendered;
use crate::save;

const SAVED: &str = r#"*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:SEAWAY-ADDRESSES - [0:0]
:SEAWAY-INVALID - [0:0]
:SEAWAY-PROXY-FORWARD - [0:0]
:SEAWAY-SERVICES - [0:0]
-A INPUT -m comment --comment "seaway services" -j SEAWAY-INVALID
-A FORWARD -m comment --comment "seaway services" -j SEAWAY-PROXY-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "seaway services" -j SEAWAY-SERVICES
-A SEAWAY-ADDRESSES -d 10.96.0.9/32 -p tcp -m comment --comment "default/empty has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
-A SEAWAY-INVALID -s 10.244.0.0/16 -p tcp -m conntrack --ctstate INVALID -j DROP
-A SEAWAY-PROXY-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:SEAWAY-ADDRESSES - [0:0]
:SEAWAY-NET-0A60 - [0:0]
:SEAWAY-HAIRPIN - [0:0]
:SEAWAY-POSTROUTING - [0:0]
:SEAWAY-SERVICES - [0:0]
:SEAWAY-SVC-1 - [0:0]
:SEAWAY-SVC-2 - [0:0]
-A PREROUTING -m comment --comment "seaway services" -j SEAWAY-SERVICES
-A SEAWAY-ADDRESSES -d 10.96.0.0/16 -g SEAWAY-NET-0A60
-A SEAWAY-HAIRPIN -s 10.244.0.5/32 -d 10.244.0.5/32 -j MASQUERADE --random-fully
-A SEAWAY-HAIRPIN -s 10.244.0.6/32 -d 10.244.0.6/32 -j MASQUERADE --random-fully
-A SEAWAY-NET-0A60 -d 10.96.0.1/32 -p tcp -m comment --comment "default/web -g x" -m tcp --dport 80 -g SEAWAY-SVC-1
-A SEAWAY-NET-0A60 -d 10.96.0.2/32 -p tcp -m comment --comment "default/api" -m tcp --dport 80 -g SEAWAY-SVC-2
-A SEAWAY-POSTROUTING -m conntrack --ctstate DNAT -j SEAWAY-HAIRPIN
-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES
-A SEAWAY-SVC-1 -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.0.5:8080
-A SEAWAY-SVC-1 -p tcp -m comment --comment "default/web" -j DNAT --to-destination 10.244.0.7:8080
-A SEAWAY-SVC-2 -p tcp -m comment --comment "default/api" -j DNAT --to-destination 10.244.0.6:8080
COMMIT
"#;

fn rendered(dump: &str) -> Rendered {
    Rendered {
        v4: save::parse(dump).unwrap(),
        ..Rendered::default()
    }
}

fn asked(dump: &str, target: &str, endpoints: &[&str]) -> Inspection {
    let addr = |text: &&str| text.parse::<SocketAddr>().unwrap();
    let subject = Subject {
        target: target.parse().unwrap(),
        endpoints: endpoints.iter().map(addr).collect(),
    };
    inspect(&rendered(dump), &rendered(SAVED), &subject)
}

fn web(dump: &str) -> Inspection {
    asked(
        dump,
        "10.96.0.1:80",
        &["10.244.0.5:8080", "10.244.0.7:8080"],
    )
}

fn shown(found: &Inspection) -> Vec<String> {
    found.differences.iter().map(ToString::to_string).collect()
}

#[test]
fn the_way_is_shown_and_nobody_elses() {
    let found = web(SAVED);
    assert_eq!(shown(&found), [""; 0]);
    let all = found.holds.join("\n");
    for part in [
        "-A PREROUTING",
        "-d 10.96.0.0/16",
        "-d 10.96.0.1/32",
        "10.244.0.7:8080",
        "-s 10.244.0.5/32",
        "filter -A SEAWAY-PROXY-FORWARD",
        "filter -A INPUT",
        "filter -A SEAWAY-INVALID -s 10.244.0.0/16",
    ] {
        assert!(all.contains(part), "{part} is not in {all}");
    }
    for part in ["10.96.0.2", "10.96.0.9", "10.244.0.6"] {
        assert!(!all.contains(part), "{part} is in {all}");
    }
}

#[test]
fn what_is_altered_is_named() {
    let line = |part: &str| SAVED.lines().find(|line| line.contains(part)).unwrap();
    // Each deleted alone, then the line is the missing one.
    for part in [
        "-A PREROUTING",
        "-A SEAWAY-ADDRESSES -d 10.96.0.0/16",
        "-d 10.96.0.1/32",
        "--to-destination 10.244.0.5:8080",
        "-s 10.244.0.5/32",
        "-A SEAWAY-PROXY-FORWARD",
        "-A SEAWAY-POSTROUTING",
        "-A INPUT",
        "-A SEAWAY-INVALID",
    ] {
        let rule = line(part);
        let text = shown(&web(&SAVED.replace(&format!("{rule}\n"), ""))).join("\n");
        assert!(
            text.contains("missing") && text.contains(rule),
            "{part}: {text}"
        );
    }
    let other = SAVED.replace("10.244.0.7:8080", "10.9.9.9:1");
    let found = web(&other);
    assert_eq!(found.differences.len(), 1, "{found:?}");
    assert_eq!(found.differences[0].deviation, Deviation::Different);
    assert!(
        found.differences[0]
            .want
            .as_ref()
            .unwrap()
            .contains("10.244.0.7:8080")
    );
    assert!(
        found.differences[0]
            .have
            .as_ref()
            .unwrap()
            .contains("10.9.9.9:1")
    );
    let added = "-A SEAWAY-SERVICES -j SEAWAY-ADDRESSES\n";
    let drop = "-A SEAWAY-SERVICES -d 10.96.0.0/24 -j DROP\n";
    let text = shown(&web(&SAVED.replace(added, &format!("{drop}{added}")))).join("\n");
    assert!(
        text.contains("extra") && text.contains(drop.trim()),
        "{text}"
    );
}

#[test]
fn what_concerns_others_is_no_difference() {
    for part in [
        "10.244.0.6:8080",
        "-d 10.96.0.2/32",
        "-d 10.96.0.9/32",
        "-s 10.244.0.6/32",
    ] {
        let kept = SAVED.lines().filter(|line| !line.contains(part));
        let dump = kept.collect::<Vec<_>>().join("\n");
        assert_eq!(shown(&web(&dump)), [""; 0], "{part}");
    }
    // Of another protocol, on the same port.
    let found = asked(SAVED, "10.96.0.1:80/UDP", &[]);
    assert!(
        !found.holds.join("\n").contains("-d 10.96.0.1/32"),
        "{found:?}"
    );
}

/// Its packets go to whoever has asked, who may be anybody.
#[test]
fn what_becomes_of_an_endpoints_stray_packets_concerns_all_of_its_protocol() {
    let drop = "-A SEAWAY-INVALID -s 10.244.0.0/16";
    let spare = "-A SEAWAY-INVALID -d 172.30.0.11/32 -p tcp -m tcp --dport 5000 -j ACCEPT";
    let dump = SAVED.replace(drop, &format!("{spare}\n{drop}"));
    assert_eq!(
        shown(&web(&dump)),
        [format!("extra in filter, chain SEAWAY-INVALID: {spare}")]
    );
    assert_eq!(shown(&asked(&dump, "10.96.0.50:80", &[])).len(), 1);
    let udp = asked(&dump, "10.96.0.1:80/UDP", &[]);
    assert_eq!(shown(&udp), [""; 0]);
    assert!(!udp.holds.join("\n").contains("--ctstate INVALID"));
}

#[test]
fn a_lost_chain_is_missing_with_all_its_rules() {
    let gone = |line: &&str| !line.contains("SEAWAY-SVC-1");
    let dump = SAVED.lines().filter(gone).collect::<Vec<_>>().join("\n");
    let text = shown(&web(&dump)).join("\n");
    for part in ["-d 10.96.0.1/32", "10.244.0.5:8080", "10.244.0.7:8080"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!shown(&web("")).is_empty());
}

#[test]
fn an_address_that_nobody_has_may_still_be_led_somewhere() {
    assert_eq!(shown(&asked(SAVED, "10.96.0.50:80", &[])), [""; 0]);
    let added = SAVED.replace(
        "COMMIT\n*nat",
        "-A SEAWAY-SERVICES -d 10.96.0.50/32 -j DROP\nCOMMIT\n*nat",
    );
    let text = shown(&asked(&added, "10.96.0.50:80", &[])).join("\n");
    assert!(
        text.contains("extra") && text.contains("10.96.0.50"),
        "{text}"
    );
}
