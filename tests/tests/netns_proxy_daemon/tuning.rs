//! kube-proxy's file, conntrack as it sets it, and what is measured of real rules.

use std::fs;

use seaway_testbed::require_root;
use serde_json::json;

use crate::fill;
use crate::node::{API, Node};
use seaway_testbed::fake_api::{FakeApi, SLICES};

const FILE: &str = "
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
oomScoreAdj: 321
enableProfiling: true
conntrackMax: 5
nftables: { masqueradeBit: 13 }
conntrack:
  tcpBeLiberal: true
  tcpEstablishedTimeout: 2h
  udpTimeout: 17s
";

/// A setting as the kernel has it in the node's namespace.
pub(crate) fn conntrack(node: &Node, name: &str) -> String {
    let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
    node.netns.must_run(&["cat", &path]).trim().to_owned()
}

#[test]
fn a_file_of_kube_proxys_reaches_the_kernel_and_flags_go_before_it() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let file = node.path("kube-proxy.conf");
    fs::write(&file, FILE).unwrap();
    let flags = ["--pod-network", "off", "--conntrack-udp-timeout", "19s"];
    let daemon = node.start_with(
        "iptables",
        &[&["--config", file.to_str().unwrap()], &flags[..]].concat(),
    );
    daemon.wait_said(&["Programmed all Services"]);
    for (name, value) in [
        ("tcp_timeout_established", "7200"),
        ("tcp_timeout_close_wait", "3600"),
        ("tcp_be_liberal", "1"),
        ("udp_timeout", "19"),
    ] {
        assert_eq!(conntrack(&node, name), value, "{name}");
    }
    // Nothing is invalid any more, so nothing is dropped for it.
    assert!(!node.has_rule("INVALID"), "{:?}", node.rules());
    assert!(node.has_rule("--mark 0x2000/0x2000"), "{:?}", node.rules());
    assert_eq!(daemon.said(&["without effect", "enableProfiling"]), 1);
    // Of another version, or misspelt.
    let unknown = ["without effect", "conntrackMax", "unknown field"];
    assert_eq!(daemon.said(&unknown), 1, "{}", daemon.log());
    let oom = fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.pid()));
    assert_eq!(oom.unwrap(), "321\n");
    let (_, mode) = node.get_from("127.0.0.1:10249", "/proxyMode").unwrap();
    assert_eq!(mode, "iptables");
    assert_eq!(daemon.terminate().code(), Some(0));

    fs::write(&file, format!("{FILE}\nclusterCIDR: 5\n")).unwrap();
    let daemon = node.start_with("iptables", &["--config", file.to_str().unwrap()]);
    daemon.wait_said(&["kube-proxy.conf: clusterCIDR: 5: "]);
    assert_eq!(daemon.ended().code(), Some(64));
}

#[test]
fn a_file_that_says_something_else_wants_a_new_start() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let file = node.path("kube-proxy.conf");
    fs::write(&file, FILE).unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let flags = [&config[..], &["--pod-network", "off"]].concat();
    let daemon = node.start_with("iptables", &flags);
    daemon.wait_said(&["Programmed all Services"]);
    fs::write(&file, FILE.replace("udpTimeout: 17s", "udpTimeout: much")).unwrap();
    let cannot = ["Cannot take the new configuration", "udpTimeout"];
    daemon.wait_said(&cannot);

    // As a ConfigMap's volume does it: another file in its place.
    let other = node.path("other.conf");
    fs::write(&other, FILE.replace("udpTimeout: 17s", "udpTimeout: 21s")).unwrap();
    fs::rename(&other, &file).unwrap();
    daemon.wait_said(&["Ending", "kube-proxy.conf says something else"]);
    assert_eq!(daemon.said(&cannot), 1, "{}", daemon.log());
    assert_eq!(daemon.ended().code(), Some(1));
    assert!(node.has_rule("SEAWAY-"), "{:?}", node.rules());

    let daemon = node.start_with("iptables", &flags);
    daemon.wait("the new timeout", || {
        conntrack(&node, "udp_timeout") == "21"
    });
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn rules_and_what_came_about_are_measured() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start_with("iptables", &["--pod-network", "off"]);
    daemon.wait_said(&["Programmed all Services"]);
    assert!(node.has_rule("INVALID"), "{:?}", node.rules());
    // An event on the Node says that it is served.
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    daemon.wait("an event", || {
        api.requests().iter().any(|path| path.starts_with(events))
    });
    let mut slice = crate::slice("web", "10.244.0.6");
    let now = node.netns.must_run(&["date", "--utc", "+%FT%T.%NZ"]);
    let annotation = "endpoints.kubernetes.io/last-change-trigger-time";
    slice["metadata"]["annotations"] = json!({ annotation: now.trim() });
    api.apply(SLICES, slice);
    let metrics = || node.get_from("127.0.0.1:10249", "/metrics").unwrap().1;
    let programmed = "kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"} 1";
    daemon.wait("the measure", || metrics().contains(programmed));
    let metrics = metrics();
    let value = |line: &str| -> usize {
        let found = metrics.lines().find_map(|l| l.strip_prefix(line));
        let found = found.unwrap_or_else(|| panic!("no {line} in\n{metrics}"));
        found.trim().parse().unwrap()
    };
    let gauge = |name: &str, table: &str| {
        value(&format!(
            "kubeproxy_sync_proxy_rules_iptables_{name}{{table=\"{table}\",ip_family=\"IPv4\"}}"
        ))
    };
    // Ours are all that this kernel has.
    let save = node
        .netns
        .must_run(&["iptables-nft-save", "--table", "nat"]);
    let rules = save.lines().filter(|line| line.starts_with("-A")).count();
    assert_eq!(gauge("total", "nat"), rules, "{save}");
    let last = gauge("last", "nat");
    assert!(0 < last && last < rules, "{last} of {rules}");
    assert_eq!(daemon.terminate().code(), Some(0));
}
