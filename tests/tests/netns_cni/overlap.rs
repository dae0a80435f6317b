//! Calls for one attachment at the same time, which the specification forbids.

use std::process::Child;

use seaway_testbed::{Netns, require_root};

use crate::node::{Node, assert_reaches, pod_path, start};

fn both(node: &Node, verbs: [&str; 2], pod: &Netns) -> [bool; 2] {
    let calls: Vec<Child> = verbs
        .iter()
        .map(|verb| start(node.command(verb, "c1", pod_path(pod)), &node.conf))
        .collect();
    let done: Vec<bool> = calls
        .into_iter()
        .map(|call| call.wait_with_output().unwrap().status.success())
        .collect();
    [done[0], done[1]]
}

#[test]
fn of_two_adds_one_wins_and_keeps_its_address() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    for _ in 0..10 {
        let pod = Netns::new("pod");
        let done = both(&node, ["ADD", "ADD"], &pod);
        assert_eq!(done.iter().filter(|won| **won).count(), 1, "{done:?}");
        let records = node.records();
        assert_eq!(records.len(), 1, "{records:?}");
        let (address, _) = records[0].split_once('=').unwrap();
        assert_reaches(&node.netns, address);
        node.del("c1", pod_path(&pod));
        node.assert_empty();
    }
}

#[test]
fn an_add_beside_a_del_is_whole_or_absent() {
    if !require_root() {
        return;
    }
    for round in 0..20 {
        // The very first calls of a network find no folder yet.
        let node = Node::new("10.244.1.0/24");
        if round % 2 == 1 {
            node.del("nobody", "");
        }
        let pod = Netns::new("pod");
        both(&node, ["ADD", "DEL"], &pod);
        let links = node.netns.ip_json("link").as_array().unwrap().len();
        assert_eq!(links - 1, node.records().len(), "a link for each record");
        node.del("c1", pod_path(&pod));
        node.assert_empty();
    }
}
