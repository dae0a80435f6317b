//! What is sent to `iptables-restore`, line by line.

use super::*;

/// Chains with their rules, and jumps, of the nat table.
fn nat(chains: &[(&str, &[&str])], jumps: &[(&str, &str)]) -> Tables {
    let mut rendered = Tables::default();
    for (chain, rules) in chains {
        rendered.nat.add_chain(chain);
        for rule in *rules {
            rendered.nat.push(chain, format_args!("{rule}"));
        }
    }
    rendered.nat.jumps = jumps
        .iter()
        .map(|&(from, rule)| (from.to_owned(), rule.to_owned()))
        .collect();
    rendered
}

#[track_caller]
fn check(have: &Tables, want: &Tables, expected: &[&str]) {
    let transaction = have.transaction_to(want);
    assert_eq!(transaction.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn from_nothing_to_something_and_back() {
    let nothing = Tables::default();
    let something = nat(
        &[("SEAWAY-SERVICES", &["-d 10.96.0.1/32 -j RETURN"])],
        &[("OUTPUT", "-j SEAWAY-SERVICES")],
    );
    check(
        &nothing,
        &something,
        &[
            "*nat",
            ":SEAWAY-SERVICES - [0:0]",
            "-A SEAWAY-SERVICES -d 10.96.0.1/32 -j RETURN",
            "-I OUTPUT -j SEAWAY-SERVICES",
            "COMMIT",
        ],
    );
    check(
        &something,
        &nothing,
        &[
            "*nat",
            ":SEAWAY-SERVICES - [0:0]",
            "-D OUTPUT -j SEAWAY-SERVICES",
            "-X SEAWAY-SERVICES",
            "COMMIT",
        ],
    );
    check(&something, &something, &[]);
}

#[test]
fn only_what_differs_is_written() {
    let have = nat(&[("A", &["-j X"]), ("B", &["-j X"]), ("C", &["-j X"])], &[]);
    let want = nat(
        &[("A", &["-j X"]), ("B", &["-j X", "-j Y"]), ("D", &[])],
        &[],
    );
    check(
        &have,
        &want,
        &[
            "*nat",
            ":B - [0:0]",
            ":D - [0:0]",
            ":C - [0:0]",
            "-A B -j X",
            "-A B -j Y",
            "-X C",
            "COMMIT",
        ],
    );
}

#[test]
fn jumps_are_put_right() {
    let have = nat(
        &[],
        &[("DOCKER", "-j A"), ("OUTPUT", "-j A"), ("OUTPUT", "-j A")],
    );
    let want = nat(&[], &[("OUTPUT", "-j A"), ("PREROUTING", "-j A")]);
    check(
        &have,
        &want,
        &[
            "*nat",
            "-D DOCKER -j A",
            "-D OUTPUT -j A",
            "-I PREROUTING -j A",
            "COMMIT",
        ],
    );
}

#[test]
fn refusal_comes_before_translation_ends() {
    let mut have = nat(&[("SEAWAY-SVC-1", &["-j DNAT"])], &[]);
    have.filter.add_chain(SERVICES);
    let mut want = Tables::default();
    want.filter.push(SERVICES, format_args!("-j REJECT"));
    let transaction = have.transaction_to(&want);
    assert!(
        transaction.find("REJECT") < transaction.find("-X SEAWAY-SVC-1"),
        "{transaction}"
    );
}

#[test]
fn knows_its_own() {
    for ours in [
        SERVICES,
        POSTROUTING,
        HAIRPIN,
        "SEAWAY-SVC-0",
        "SEAWAY-NET-0A",
        "SEAWAY-HAIR-0",
    ] {
        assert!(is_ours(ours), "{ours}");
    }
    for foreign in [
        "PREROUTING",
        "KUBE-SERVICES",
        "SEAWAY",
        "SEAWAY-FORWARD",
        "seaway-svc-0",
    ] {
        assert!(!is_ours(foreign), "{foreign}");
    }
}
