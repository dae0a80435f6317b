//! Starts: wrong flags, an API server that is late or tells wrong things, a backend that cannot
//! work.

use std::process::Command;

use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::{bin, require_root};

use crate::node::{API, CONF, Node};
use crate::{fill, node, service};

#[test]
fn bad_usage_exits_64_and_names_the_flag() {
    let words = "--cluster-cidr 10.244.0.0/16 --kubeconfig /nonexistent/kubeconfig";
    for (flags, expect) in [
        ("--service-proxy nftables", "--service-proxy"),
        ("--no-such-flag", "--no-such-flag"),
        ("", "--cluster-cidr"),
        (
            "--service-proxy off --pod-network off",
            "--service-proxy=off",
        ),
        (words, "/nonexistent/kubeconfig"),
        (
            "--cluster-cidr 10.244.0.0/16 --api-server http://127.0.0.1:1",
            "--api-server http://127.0.0.1:1 wants credentials",
        ),
    ] {
        let mut command = Command::new(bin("seaway-proxy"));
        let output = command
            .arg("run")
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{flags}: {text}");
        assert!(text.contains(expect), "{flags}: {text}");
    }
}

#[test]
fn any_address_means_both_families() {
    if !require_root() {
        return;
    }
    // The default, and an IPv4 one without its port; whatever the node says of sockets of IPv6.
    for flag in [None, Some("--healthz-bind-address=0.0.0.0")] {
        let node = Node::new();
        node.netns.sysctl("ipv6/bindv6only", "1");
        let mut command = node.command("run");
        command.arg("--kubeconfig").arg(node.path("kubeconfig"));
        command.args(["--node-name", "a", "--pod-network", "off"]);
        command.args(["--service-proxy", "iptables"]).args(flag);
        command.args(["--metrics-bind-address", "0.0.0.0:10249"]);
        let daemon = node.launch(&mut command);
        for address in [
            "[::1]:10256/livez",
            "127.0.0.1:10256/livez",
            "172.30.0.11:10256/livez",
            "[::1]:10249/metrics",
            "127.0.0.1:10249/metrics",
        ] {
            let curl = ["curl", "-fsg", "--max-time", "3", address];
            daemon.wait(address, || node.netns.run(&curl).status.success());
        }
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

/// Rules and chains that somebody added. Tables with nothing but base chains appear as soon as
/// ip6tables is asked anything.
fn rules_v6(node: &Node) -> Vec<String> {
    let dump = node.netns.must_run(&["ip6tables-save"]);
    assert!(!dump.contains("SEAWAY-"), "{dump}");
    let added = dump
        .lines()
        .filter(|l| l.starts_with("-A") || l.ends_with("- [0:0]"));
    added.map(str::to_owned).collect()
}

#[test]
fn without_an_api_server_it_lives_waits_and_touches_nothing() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (rules, rules_of_v6, tables) = (node.rules(), rules_v6(&node), node.nft());
    let daemon = node.start("iptables");
    daemon.wait_said(&["Cannot watch the API server", "Services", "refused"]);
    daemon.wait("/livez", || {
        node.get("/livez").is_ok_and(|(code, _)| code == 200)
    });
    let (code, body) = node.get("/healthz").unwrap();
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("\"nodeEligible\":false"), "{body}");
    assert!(body.contains("lastUpdated"), "{body}");
    assert_eq!(
        (node.rules(), node.nft(), node.routes().as_str()),
        (rules, tables, "")
    );
    assert_eq!(rules_v6(&node), rules_of_v6);
    assert!(!node.path(CONF).exists());
    // The same outage is not told again and again.
    assert!(daemon.said(&["Cannot watch"]) <= 3, "{}", daemon.log());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn selectors_are_kube_proxys() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    let daemon = node.start("iptables");
    daemon.wait("all lists and watches", || api.requests().len() >= 6);
    for request in api.requests() {
        let selectors: &[&str] = if request.contains("/services") {
            &[
                "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name",
                "fieldSelector=spec.clusterIP%21%3DNone",
            ]
        } else if request.contains("/endpointslices") {
            &["labelSelector=%21service.kubernetes.io%2Fheadless"]
        } else {
            &[]
        };
        for selector in selectors {
            assert!(request.contains(selector), "{selector} is not in {request}");
        }
    }
}

#[test]
fn nothing_is_written_before_the_slices_are_there() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let rules = node.rules();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), Some(SLICES));
    fill(&api);
    let daemon = node.start("iptables");
    // The pod network does not wait for Services; its conf does.
    daemon.wait("the pod network", || !node.routes().is_empty());
    daemon.wait("the request for slices", || {
        api.requests().iter().any(|r| r.contains(SLICES))
    });
    assert_eq!(node.rules(), rules);
    assert!(!node.path(CONF).exists());
    api.release();
    daemon.wait("the CNI conf", || node.path(CONF).exists());
    assert!(node.has_rule("10.96.0.1"));
}

#[test]
fn wrong_objects_are_named_once_and_hurt_no_other() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    api.apply(SERVICES, service("bad", "10.96.0.999"));
    api.apply(NODES, node("d", "172.30.0.14", "10.244.0.0/99"));
    let daemon = node_a.start("iptables");
    daemon.wait("the CNI conf", || node_a.path(CONF).exists());
    assert!(node_a.has_rule("10.96.0.1"));
    api.apply(SERVICES, service("more", "10.96.0.7"));
    daemon.wait("another Service", || node_a.has_rule("10.96.0.7"));
    let bad = ["WARN", "default/bad", "spec.clusterIP", "10.96.0.999"];
    assert_eq!(daemon.said(&bad), 1, "{}", daemon.log());
    assert_eq!(
        daemon.said(&["WARN", "\"d\"", "spec.podCIDRs"]),
        1,
        "{}",
        daemon.log()
    );
}

#[test]
fn a_backend_that_cannot_work_ends_the_process() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    // A folder that is on no BPF file system.
    let mut command = node.command_with("run", &node.path("pins"));
    command
        .arg("--kubeconfig")
        .arg(node.path("kubeconfig"))
        .args(["--pod-network", "off"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("pins") && text.contains("mount -t bpf"),
        "{text}"
    );
}
