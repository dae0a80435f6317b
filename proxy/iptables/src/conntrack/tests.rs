use std::net::SocketAddr;
use std::time::Duration;

use seaway_proxy_core::desired::Protocol;

use super::memory::Names;
use super::*;

/// Flows of as many clients, told apart by their keys.
fn flows(count: u8) -> Vec<Entry> {
    let entry = |key| Entry {
        protocol: Protocol::Udp,
        to: SocketAddr::from(([10, 96, 0, 10], 53)),
        answers: SocketAddr::from(([10, 244, 0, 2], 5353)),
        key: vec![key],
    };
    (0..count).map(entry).collect()
}

fn refused(key: u8) -> NetlinkError {
    NetlinkError::refused("delete", format!("flow {key}"), libc::EBUSY)
}

/// A kernel that keeps some, each for a reason of its own.
fn clean(stale: &[Entry], keeps: impl Fn(u8) -> Option<NetlinkError>) -> (Cleaned, BTreeSet<u8>) {
    let mut left: BTreeSet<u8> = stale.iter().map(|entry| entry.key[0]).collect();
    let cleaned = delete_all(stale, |entry| {
        if let Some(error) = keeps(entry.key[0]) {
            return Err(error);
        }
        left.remove(&entry.key[0]);
        Ok(())
    });
    (cleaned, left)
}

#[test]
fn a_flow_that_cannot_be_removed_keeps_no_other_and_is_told() {
    let stale = flows(6);
    let (cleaned, left) = clean(&stale, |key| [1, 4].contains(&key).then(|| refused(key)));
    assert_eq!(left, BTreeSet::from([1, 4]));
    assert_eq!(cleaned.removed, 4);
    let first = cleaned.error.map(|error| error.to_string());
    assert_eq!(first.as_deref(), Some("delete flow 1"));
    let (cleaned, left) = clean(&stale, |_| None);
    assert_eq!((cleaned.removed, left.len()), (6, 0));
    assert!(cleaned.error.is_none());
}

#[test]
fn a_kernel_that_does_not_answer_is_not_asked_for_each_flow() {
    let silent = |key| NetlinkError {
        op: "delete",
        object: format!("flow {key}"),
        reason: Reason::Timeout(Duration::from_secs(30)),
    };
    let (cleaned, left) = clean(&flows(6), |key| (key == 2).then(|| silent(key)));
    assert_eq!(left, BTreeSet::from([2, 3, 4, 5]));
    assert_eq!(cleaned.removed, 2);
    assert!(cleaned.error.is_some());
}

/// A Service of UDP, and nothing else.
fn dns(addr: [u8; 4]) -> Flows {
    Flows::named(&Names {
        addresses: BTreeSet::from([(Protocol::Udp, (addr, 53).into())]),
        ..Names::default()
    })
}

#[test]
fn what_was_there_while_nothing_could_be_cleaned_up_is_remembered() {
    let [one, two] = [dns([10, 96, 0, 1]), dns([10, 96, 0, 2])];
    let mut past = Past {
        done: Some(one.clone()),
        missed: Flows::default(),
    };
    assert!(past.is_idle(&one) && !past.is_idle(&two));
    // It comes, cannot be cleaned up for, and goes.
    past.missed.absorb(&two);
    assert!(!past.is_idle(&one));
    let flow = |to: [u8; 4]| Entry {
        protocol: Protocol::Udp,
        to: SocketAddr::from((to, 53)),
        answers: SocketAddr::from(([10, 244, 0, 2], 5353)),
        key: Vec::new(),
    };
    for to in [[10, 96, 0, 1], [10, 96, 0, 2]] {
        let before = past.before();
        let none = Flows::default();
        assert!(flows::stale(&flow(to), &BTreeSet::new(), &none, &before));
    }
    assert!(Past::default().is_idle(&Flows::default()));
    assert!(!Past::default().is_idle(&one));
}
