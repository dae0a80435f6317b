//! Chains of another version, where not all of them can be taken away.

use seaway_proxy_iptables::{Flavour, Iptables};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;

use crate::node::{Node, VIP, answers, block_on, config, names, web};

/// An older layout that translates to nobody, with a jump that today's version has no words
/// for.
const OLDER: &str = r#"*nat
:SEAWAY-SERVICES - [0:0]
:SEAWAY-CLUSTER-IPS - [0:0]
:SEAWAY-END-0 - [0:0]
-A PREROUTING -j SEAWAY-SERVICES
-A PREROUTING -m length --length 20:65535 -m comment --comment "seaway" -j SEAWAY-CLUSTER-IPS
-A SEAWAY-SERVICES -j SEAWAY-CLUSTER-IPS
-A SEAWAY-CLUSTER-IPS -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -g SEAWAY-END-0
-A SEAWAY-END-0 -p tcp -j DNAT --to-destination 10.244.0.9:8080
COMMIT
*filter
:SEAWAY-ACCEPT - [0:0]
-A FORWARD -j SEAWAY-ACCEPT
-A SEAWAY-ACCEPT -m conntrack --ctstate DNAT -j ACCEPT
COMMIT"#;

/// Only nft can show such a table, so the jump cannot be told to iptables, and holds its chain.
#[test]
fn a_chain_that_cannot_be_deleted_is_emptied_and_keeps_nothing_from_being_served() {
    if !require_root() {
        return;
    }
    let mut n = Node::new(config(Flavour::Nft));
    n.restore(Flavour::Nft, OLDER);
    for command in [
        "add set ip nat others { type ipv4_addr; }",
        "add chain ip nat other",
        "add rule ip nat other ip saddr @others return",
        "add rule ip nat other dnat to 192.0.2.1",
    ] {
        n.host.must_run(&["nft", command]);
    }
    let save = n.host.must_run(&["iptables-nft-save"]);
    assert!(save.contains("incompatible"), "{save}");
    assert!(n.sync(&web(2)));
    let answered = answers(&n.client, Protocol::Tcp, VIP);
    assert_eq!(names(&answered), ["pod0", "pod1"].into());
    assert!(!n.sync(&web(2)), "what cannot be deleted is no news");
    let rules = n.host.must_run(&["nft", "list", "ruleset"]);
    for gone in ["SEAWAY-END-0", "SEAWAY-ACCEPT", "10.244.0.9"] {
        assert!(!rules.contains(gone), "{gone} in {rules}");
    }
    assert!(rules.contains("chain SEAWAY-CLUSTER-IPS"), "{rules}");

    // Whoever starts when nothing holds it any more takes it away.
    n.host.must_run(&["nft", "delete chain ip nat other"]);
    n.host.must_run(&["nft", "delete set ip nat others"]);
    let next = || block_on(Iptables::new(config(Flavour::Nft)));
    n.backend = n.host.enter(next).unwrap();
    assert!(n.sync(&web(2)) && !n.sync(&web(2)));
    let rules = n.host.must_run(&["nft", "list", "ruleset"]);
    assert!(!rules.contains("SEAWAY-CLUSTER-IPS"), "{rules}");
}
