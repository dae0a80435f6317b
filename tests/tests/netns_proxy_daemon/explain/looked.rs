//! `status` looks at the kernel, where it finds what nothing tells the daemon of; what it knows
//! without that it says in any case.

use std::fs;
use std::time::{Duration, Instant};

use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::{require_root, write_program};
use serde_json::{Value, json};

use super::{check, told};
use crate::node::{API, Daemon, Node};
use crate::ours;

/// A node with a Service whose clients come back, which takes a set; the daemon is in sync.
fn sticky(node: &Node) -> (FakeApi, Daemon) {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    crate::fill(&api);
    let mut web = crate::service("web", "10.96.0.1");
    web["spec"]["sessionAffinity"] = json!("ClientIP");
    api.apply(SERVICES, web);
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || once(node, "text").0 == 0);
    (api, daemon)
}

/// One look: another one might come after the repair.
fn once(node: &Node, output: &str) -> (i32, String) {
    let mut command = node.command("status");
    command.args(["--output", output]);
    let (code, text, said) = told(command);
    (code, format!("{text}{said}"))
}

fn as_json(node: &Node) -> (i32, Value) {
    let (code, text) = once(node, "json");
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (code, value)
}

#[test]
fn status_says_that_the_kernel_differs_until_it_is_repaired() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (_api, daemon) = sticky(&node);
    check(&once(&node, "text").1, &["  kernel: as it should be\n"]);
    let made = ours::sets(&node.netns);
    assert_eq!(made.len(), 1, "{made:?}");
    let name = made[0].split(' ').nth(1).unwrap();
    // The kernel tells nobody of that.
    let replace = format!(
        "ipset create spare hash:ip family inet timeout 7 && ipset swap spare {name} && \
         ipset destroy spare"
    );
    let wanted = format!("set {name} timeout 10800");
    for output in ["text", "json"] {
        let mut text = String::new();
        // The daemon may read the sets just then, so a look may come too late.
        let seen = (0..3).any(|_| {
            node.netns.must_run(&["sh", "-c", &replace]);
            let (code, said) = once(&node, output);
            text = said;
            code == 1
        });
        assert!(seen, "{text}{}", daemon.log());
        if output == "text" {
            let missing = format!("missing in IPv4: {wanted}\n");
            let extra = format!("extra in IPv4: set {name} timeout 7\n");
            let differs = "  kernel: not as it should be, being repaired\n";
            check(&text, &["node a: not in sync", differs, &missing, &extra]);
        } else {
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["inSync"], false, "{value}");
            let kernel = &value["serviceProxy"]["kernel"];
            assert_eq!(kernel["agree"], false, "{value}");
            assert_eq!(kernel["differing"], 2, "{value}");
            assert_eq!(kernel["first"][0]["want"], json!(wanted), "{value}");
        }
        daemon.wait("the repair", || ours::sets(&node.netns) == made);
        daemon.wait("agreement", || once(&node, "text").0 == 0);
    }
    let (code, value) = as_json(&node);
    assert_eq!(code, 0, "{value}");
    assert_eq!(value["serviceProxy"]["kernel"]["agree"], true, "{value}");
    let repaired = value["serviceProxy"]["driftRepaired"].as_u64().unwrap();
    assert!(repaired >= 2, "{value}");
}

#[test]
fn status_says_what_it_knows_of_a_kernel_that_cannot_be_read() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (_api, daemon) = sticky(&node);
    let program = node.path("bin/ipset");
    fs::create_dir(node.path("bin")).unwrap();
    write_program(&program, "#!/bin/sh\necho no sets today >&2\nexit 1\n");
    let (code, text) = once(&node, "text");
    assert_eq!(code, 1, "{text}{}", daemon.log());
    check(&text, &["node a: not in sync", "  kernel: not known: "]);
    check(&text, &["list the sets of clients", "no sets today"]);
    check(&text, &[" s ago (", "pending changes: 0", "services: 1, "]);
    let (code, value) = as_json(&node);
    assert_eq!(code, 1, "{value}");
    let proxy = &value["serviceProxy"];
    assert_eq!(proxy["kernel"]["agree"], Value::Null, "{value}");
    assert!(proxy["syncAgeSeconds"].is_u64(), "{value}");
    fs::remove_file(&program).unwrap();
    daemon.wait("agreement", || once(&node, "text").0 == 0);
}

#[test]
fn the_age_of_a_sync_grows_until_the_next_one() {
    if !require_root() {
        return;
    }
    let started = Instant::now();
    let node = Node::new();
    let (api, daemon) = sticky(&node);
    let age = |node: &Node| as_json(node).1["serviceProxy"]["syncAgeSeconds"].as_u64();
    daemon.wait("an age", || age(&node).is_some_and(|age| age >= 2));
    let (_, value) = as_json(&node);
    let last = value["serviceProxy"]["lastSync"].clone();
    let (_, text) = once(&node, "text");
    let said = text.split_once("  last sync: ").unwrap().1;
    let (said, at) = said.split_once(" s ago (").unwrap();
    let said: u64 = said.parse().unwrap();
    // A second more for what is cut off at both ends.
    let oldest = started.elapsed() + Duration::from_secs(1);
    assert!(Duration::from_secs(said) <= oldest, "{text}");
    assert!(said >= 2, "{text}");
    assert!(at.starts_with(last.as_str().unwrap()), "{last} {text}");
    let changed = Instant::now();
    api.apply(SLICES, crate::slice("web", "10.244.0.6"));
    daemon.wait("the next sync", || {
        let (code, value) = as_json(&node);
        code == 0 && value["serviceProxy"]["lastSync"] != last
    });
    let age = age(&node).unwrap();
    let oldest = changed.elapsed() + Duration::from_secs(1);
    assert!(Duration::from_secs(age) <= oldest, "{age} s");
}
