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
    let transaction = whole(have, want);
    assert_eq!(transaction.lines().collect::<Vec<_>>(), expected);
}

/// The only transaction, or none.
#[track_caller]
fn whole(have: &Tables, want: &Tables) -> String {
    let all = have.transactions_to(want, usize::MAX);
    assert!(all.len() < 2, "{all:?}");
    all.first().map(ToString::to_string).unwrap_or_default()
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
    let transaction = whole(&have, &want);
    assert!(
        transaction.find("REJECT") < transaction.find("-X SEAWAY-SVC-1"),
        "{transaction}"
    );
}

/// Services' chains that are new go first, in portions; whoever they lead to before them.
#[test]
fn much_is_written_in_portions() {
    let have = nat(&[("SEAWAY-SVC-0", &["-j OLD"])], &[]);
    let want = nat(
        &[
            ("SEAWAY-ADDRESSES", &["-g SEAWAY-NET-0A"]),
            ("SEAWAY-EXT-1", &["-g SEAWAY-SVC-1"]),
            ("SEAWAY-NET-0A", &["-g SEAWAY-NET-0A60"]),
            ("SEAWAY-NET-0A60", &["-g SEAWAY-EXT-1"]),
            ("SEAWAY-MARK-OUTSIDE", &["-j MARK"]),
            ("SEAWAY-SEP-1", &["-j DNAT"]),
            ("SEAWAY-SVC-0", &["-j NEW"]),
            (
                "SEAWAY-SVC-1",
                &["-j SEAWAY-MARK-OUTSIDE", "-g SEAWAY-SEP-1"],
            ),
            ("SEAWAY-SVC-2", &["-j DNAT"]),
            ("SEAWAY-SVC-3", &["-j DNAT"]),
            ("SEAWAY-SVL-1", &["-j DNAT"]),
        ],
        &[("OUTPUT", "-g SEAWAY-EXT-1")],
    );
    let all = have.transactions_to(&want, 3);
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    let rules = |text: &String| -> Vec<String> {
        let rules = text
            .lines()
            .filter(|l| l.starts_with("-A") || l.starts_with("-I"));
        rules.map(str::to_owned).collect()
    };
    let expected: [&[&str]; 4] = [
        &[
            "-A SEAWAY-MARK-OUTSIDE -j MARK",
            "-A SEAWAY-SEP-1 -j DNAT",
            "-A SEAWAY-SVC-1 -j SEAWAY-MARK-OUTSIDE",
            "-A SEAWAY-SVC-1 -g SEAWAY-SEP-1",
        ],
        &[
            "-A SEAWAY-SVC-2 -j DNAT",
            "-A SEAWAY-SVC-3 -j DNAT",
            "-A SEAWAY-SVL-1 -j DNAT",
        ],
        &[
            "-A SEAWAY-EXT-1 -g SEAWAY-SVC-1",
            // In their order by name it would be the other way round.
            "-A SEAWAY-NET-0A60 -g SEAWAY-EXT-1",
            "-A SEAWAY-NET-0A -g SEAWAY-NET-0A60",
        ],
        &[
            "-A SEAWAY-ADDRESSES -g SEAWAY-NET-0A",
            "-A SEAWAY-SVC-0 -j NEW",
            "-I OUTPUT -g SEAWAY-EXT-1",
        ],
    ];
    for (nth, expected) in expected.iter().enumerate() {
        assert_eq!(
            all.get(nth).map(rules).unwrap_or_default(),
            *expected,
            "{all:#?}"
        );
    }
    assert!(
        all.iter()
            .all(|text| text.starts_with("*nat\n") && text.ends_with("COMMIT\n"))
    );
    // Somebody is led to what is there already, so it changes with all else.
    let mut other = want.clone();
    other
        .nat
        .chains
        .values_mut()
        .for_each(|body| *body = Body::default());
    assert_eq!(other.transactions_to(&want, 3).len(), 1);
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
        "SEAWAY-OF-ANOTHER-VERSION",
    ] {
        assert!(is_ours(ours), "{ours}");
    }
    for foreign in [
        "PREROUTING",
        "KUBE-SERVICES",
        "SEAWAY",
        "SEAWAYS-SERVICES",
        "seaway-svc-0",
    ] {
        assert!(!is_ours(foreign), "{foreign}");
    }
}

#[test]
fn rules_are_counted_by_table_and_those_that_are_new() {
    let jump = [("OUTPUT", "-j SEAWAY-SERVICES")];
    let before = Rendered {
        v4: nat(&[("A", &["-j B", "-j C"]), ("B", &["-j RETURN"])], &jump),
        ..Rendered::default()
    };
    let after = Rendered {
        v4: nat(&[("A", &["-j B", "-j D"]), ("B", &["-j RETURN"])], &jump),
        ..Rendered::default()
    };
    let count = |table, total, written| RuleCount {
        family: Family::V4,
        table,
        total,
        written,
    };
    let nothing = Rendered::default();
    let counts = [count("filter", 0, 0), count("nat", 4, 4)];
    assert_eq!(before.count_since(&nothing, Family::V4), counts);
    // A chain is written as a whole.
    let counts = [count("filter", 0, 0), count("nat", 4, 2)];
    assert_eq!(after.count_since(&before, Family::V4), counts);
    let counts = after.count_since(&before, Family::V6);
    assert!(counts.iter().all(|c| (c.total, c.written) == (0, 0)));
}
