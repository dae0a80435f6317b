//! The interpreter against the table of flows.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use seaway_proxy_core::flows::{Flow, flows};
use seaway_proxy_core::interpret::{Outcome, interpret};

#[test]
fn every_flow_ends_as_its_row_says() {
    let mut wrong = Vec::new();
    for flow in flows().into_iter().flat_map(|flow| [flow, flow.in_v6()]) {
        let desired = flow.given.compiled(flow.family).desired;
        let outcome = interpret(&desired, &flow.node_addresses(), &flow.packet());
        if outcome != flow.expected() {
            wrong.push(format!("{flow:#?}\nended as {outcome:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A table in which no row is ever dropped, or refused, would prove little.
#[test]
fn the_table_has_rows_of_every_kind() {
    let count = |kind: fn(&Outcome) -> bool| flows().iter().filter(|f| kind(&f.expected())).count();
    assert!(count(|o| matches!(o, Outcome::Answered(_))) > 60);
    assert!(count(|o| *o == Outcome::Refused) > 10);
    assert!(count(|o| *o == Outcome::Unanswered) > 10);
    assert!(count(|o| *o == Outcome::Untouched) > 5);
    let v6 = |flow: &Flow| flow.in_v6().src().is_ipv6() && flow.in_v6().dst().is_ipv6();
    assert!(flows().iter().all(v6));
    let cases: BTreeSet<u16> = flows().iter().flat_map(|f| f.cases).copied().collect();
    eprintln!("{} cases: {cases:?}", cases.len());
}
