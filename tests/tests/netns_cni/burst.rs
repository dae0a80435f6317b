//! Many pods at once.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::{Duration, Instant};

use seaway_testbed::{Netns, require_root, short_or_long};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, addresses, pod_path, start, success, text};

const BOTH: [&str; 2] = ["10.244.0.0/20", "fd00:1:2::/64"];
const MANY: usize = 64;

/// Every other pod has a port of the host.
fn conf(node: &Node, n: usize) -> Value {
    let mut conf = node.conf.clone();
    if n.is_multiple_of(2) {
        let port = json!({"hostPort": 20_000 + n, "containerPort": 80, "protocol": "tcp"});
        conf["runtimeConfig"] = json!({ "portMappings": [port] });
    }
    conf
}

fn start_all(node: &Node, verb: &str, round: usize, pods: &[Netns]) -> Vec<Child> {
    let one = |(n, pod): (usize, &Netns)| {
        let command = node.command(verb, &format!("c{round}-{n}"), pod_path(pod));
        // A port is free again only when its last user is gone.
        start(command, &conf(node, n + MANY * (round % 2)))
    };
    pods.iter().enumerate().map(one).collect()
}

fn finish(calls: Vec<Child>) -> Vec<String> {
    let mut all = Vec::new();
    for call in calls {
        let output = call.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        if !output.stdout.is_empty() {
            all.extend(addresses(&success(&output)));
        }
    }
    all
}

#[test]
fn case_51_sixty_four_adds_and_dels_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let sets: [Vec<Netns>; 2] = [0, 1].map(|_| (0..MANY).map(|_| Netns::new("pod")).collect());
    let given = finish(start_all(&node, "ADD", 0, &sets[0]));
    let distinct: BTreeSet<&String> = given.iter().collect();
    assert_eq!((given.len(), distinct.len()), (2 * MANY, 2 * MANY));
    assert_eq!(node.records().len(), 2 * MANY);
    let end = Instant::now() + short_or_long(Duration::from_secs(20), Duration::from_mins(1));
    let mut round = 0;
    // Each set of pods comes and goes, however slow the machine is.
    while round < 2 || Instant::now() < end {
        let going = start_all(&node, "DEL", round, &sets[round % 2]);
        round += 1;
        let coming = start_all(&node, "ADD", round, &sets[round % 2]);
        let given = finish(coming);
        let distinct: BTreeSet<&String> = given.iter().collect();
        assert_eq!(distinct.len(), 2 * MANY, "round {round}");
        assert_eq!(finish(going), [""; 0]);
        assert_eq!(node.records().len(), 2 * MANY, "round {round}");
        let links = node.netns.ip_json("link").as_array().unwrap().len();
        assert_eq!(links, MANY + 1, "round {round}");
    }
    finish(start_all(&node, "DEL", round, &sets[round % 2]));
    node.assert_empty();
    assert_eq!(elements(&node), [""; 0]);
    for pod in sets.iter().flatten() {
        assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    }
}
