use super::*;
use crate::Masquerade;
use crate::ruleset::Match;

fn masquerade() -> Ruleset {
    let wanted = Masquerade {
        pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
        non_masquerade_cidrs: vec!["10.96.0.0/13".parse().unwrap()],
    };
    wanted.ruleset(Family::V4).unwrap()
}

/// Captured with strace from nft 1.0.6:
/// `add rule ip seaway egress-masquerade ip daddr 10.96.0.0/13 return`.
#[test]
fn expressions_equal_those_of_nft() {
    let ruleset = masquerade();
    let rule = ruleset.chains[0].rules.first().unwrap();
    assert_eq!(
        rule.matches,
        [Match::Destination("10.96.0.0/13".parse().unwrap())]
    );
    let payload = new_rule(Family::V4, "egress-masquerade", rule).payload;
    let nft = b"\x34\x00\x01\x80\x0c\x00\x01\x00payload\x00\x24\x00\x02\x80\
        \x08\x00\x01\x00\x00\x00\x00\x01\x08\x00\x02\x00\x00\x00\x00\x01\
        \x08\x00\x03\x00\x00\x00\x00\x10\x08\x00\x04\x00\x00\x00\x00\x04\
        \x44\x00\x01\x80\x0c\x00\x01\x00bitwise\x00\x34\x00\x02\x80\
        \x08\x00\x01\x00\x00\x00\x00\x01\x08\x00\x02\x00\x00\x00\x00\x01\
        \x08\x00\x03\x00\x00\x00\x00\x04\x0c\x00\x04\x80\x08\x00\x01\x00\xff\xf8\x00\x00\
        \x0c\x00\x05\x80\x08\x00\x01\x00\x00\x00\x00\x00\
        \x2c\x00\x01\x80\x08\x00\x01\x00cmp\x00\x20\x00\x02\x80\x08\x00\x01\x00\x00\x00\x00\x01\
        \x08\x00\x02\x00\x00\x00\x00\x00\x0c\x00\x03\x80\x08\x00\x01\x00\x0a\x60\x00\x00\
        \x30\x00\x01\x80\x0e\x00\x01\x00immediate\x00\x00\x00\x1c\x00\x02\x80\
        \x08\x00\x01\x00\x00\x00\x00\x00\x10\x00\x02\x80\x0c\x00\x02\x80\
        \x08\x00\x01\x00\xff\xff\xff\xfb";
    assert!(
        payload.windows(nft.len()).any(|window| window == nft),
        "{payload:02x?}"
    );
}

#[test]
fn a_rule_that_was_sent_is_recognised_when_read_back() {
    let ruleset = masquerade();
    let rules: Vec<_> = replace(&ruleset)
        .into_iter()
        .filter(|frame| frame.op == "rule add")
        .map(|frame| Reply {
            kind: frame.kind,
            payload: frame.payload,
        })
        .filter_map(|reply| mark(&reply))
        .collect();
    assert_eq!(rules, ruleset.marks());
}

#[test]
fn foreign_rules_and_garbage_are_not_ours() {
    let foreign = Attributes::after_header(2, 0)
        .text(RULE_TABLE, "nat")
        .text(RULE_CHAIN, "c");
    assert_eq!(
        mark(&Reply {
            kind: 0,
            payload: foreign.finish()
        }),
        None
    );
    for length in 0..8 {
        assert_eq!(
            mark(&Reply {
                kind: 0,
                payload: vec![0xff; length]
            }),
            None
        );
    }
    assert_eq!(userdata_comment(&[0, 200, 1]), None);
    assert_eq!(
        userdata_comment(&[9, 1, 7, 0, 3, b'a', b'b', 0]).as_deref(),
        Some("ab")
    );
}

#[test]
fn a_transaction_is_one_batch_in_which_old_rules_go_before_new_ones_come() {
    let ops: Vec<_> = replace(&masquerade())
        .into_iter()
        .map(|frame| frame.op)
        .collect();
    let order = [
        "nftables transaction",
        "table add",
        "chain add",
        "chain add",
        "chain flush",
        "chain flush",
        "rule add",
        "rule add",
        "rule add",
        "rule add",
        "rule add",
        "nftables transaction",
    ];
    assert_eq!(ops, order);
}
