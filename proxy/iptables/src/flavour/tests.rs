use super::*;

const HINT: &str = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
const OURS: &str = "*nat\n:SEAWAY-SERVICES - [0:0]\nCOMMIT\n";
/// Not where we have any.
const NAMESAKE: &str = "*mangle\n:SEAWAY-SERVICES - [0:0]\nCOMMIT\n";
const ONE_RULE: &str = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n";
const CHAINS_ONLY: &str = "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";

fn traces_of(dump: &str) -> Traces {
    let mut traces = Traces::default();
    dump.lines().for_each(|line| traces.take(line));
    traces
}

#[track_caller]
fn check(nft: &str, legacy: &str, expected: Flavour) {
    assert_eq!(choose(&traces_of(nft), &traces_of(legacy)), expected);
}

#[test]
fn the_kubelets_hint_then_our_own_chains_then_the_majority() {
    check("", "", Flavour::Nft);
    check(CHAINS_ONLY, CHAINS_ONLY, Flavour::Nft);
    check(CHAINS_ONLY, ONE_RULE, Flavour::Legacy);
    check(ONE_RULE, ONE_RULE, Flavour::Nft);
    check(ONE_RULE, OURS, Flavour::Legacy);
    check("", NAMESAKE, Flavour::Nft);
    check(HINT, OURS, Flavour::Nft);
    check(OURS, HINT, Flavour::Legacy);
    check(HINT, HINT, Flavour::Nft);
}
