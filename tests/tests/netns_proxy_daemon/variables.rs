//! Environment variables beside flags and a file of kube-proxy's. The oracle is /proc and
//! `iptables-save`.

use std::fs;

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::require_root;

use crate::fill;
use crate::node::{API, Node};
use crate::tuning::conntrack;

const FILE: &str = "
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
iptables: { masqueradeBit: 13 }
conntrack:
  tcpEstablishedTimeout: 2h
  tcpCloseWaitTimeout: 50m
  udpTimeout: 17s
  udpStreamTimeout: 18s
";

#[test]
fn variables_go_before_the_file_and_flags_before_both() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let file = node.path("kube-proxy.conf");
    fs::write(&file, FILE).unwrap();
    let mut command = node.command("run");
    command.env("SEAWAY_CONFIG", &file);
    command.env("SEAWAY_KUBECONFIG", node.path("kubeconfig"));
    for (name, value) in [
        ("SEAWAY_NODE_NAME", "a"),
        ("SEAWAY_POD_NETWORK", "off"),
        ("SEAWAY_IPTABLES_MASQUERADE_BIT", "12"),
        ("SEAWAY_CONNTRACK_UDP_TIMEOUT", "23s"),
        // What it would be without the file.
        ("SEAWAY_CONNTRACK_TCP_TIMEOUT_CLOSE_WAIT", "1h"),
        ("SEAWAY_CONNTRACK_UDP_TIMEOUT_STREAM", "24s"),
    ] {
        command.env(name, value);
    }
    command.args(["--conntrack-udp-timeout-stream", "29s"]);
    let daemon = node.launch(&mut command);
    daemon.wait_said(&["Programmed all Services", "backend=\"iptables\""]);
    for (name, value) in [
        // Nothing but the file says something of this one.
        ("tcp_timeout_established", "7200"),
        ("tcp_timeout_close_wait", "3600"),
        ("udp_timeout", "23"),
        ("udp_timeout_stream", "29"),
    ] {
        assert_eq!(conntrack(&node, name), value, "{name}");
    }
    assert!(node.has_rule("--mark 0x1000/0x1000"), "{:?}", node.rules());
    assert_eq!(daemon.terminate().code(), Some(0));
}
