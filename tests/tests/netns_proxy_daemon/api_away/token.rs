//! A service account's token that kubelet replaces, early and late.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use seaway_testbed::fake_api::{FakeApi, SLICES};
use seaway_testbed::require_root;

use super::SOON;
use crate::node::{API, HEALTHZ, Node};
use crate::{fill, slice};

/// Where kubelet puts a pod's token; `/var/run` leads here.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// As in a pod: credentials are those of its service account. The server speaks no TLS, which
/// `--api-server` says.
fn in_cluster(node: &Node) -> Command {
    // What is written there must not be seen outside.
    let account = fs::canonicalize("/var/run").unwrap();
    assert_eq!(account, PathBuf::from("/run"));
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    node.mount_file(&format!("{ACCOUNT}/ca.crt"), &authority.pem());
    node.mount_file(&format!("{ACCOUNT}/namespace"), "kube-system");
    let mut command = node.command("run");
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    command.env("KUBERNETES_SERVICE_PORT", "443");
    command.args(["--api-server", &format!("http://{API}")]);
    command.args(["--node-name", "a", "--service-proxy", "iptables"]);
    command.args(["--pod-network", "off", "--healthz-bind-address", HEALTHZ]);
    command
}

#[test]
fn a_service_accounts_token_that_kubelet_has_replaced_is_used_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let mount = |token: &str| node.mount_file(&format!("{ACCOUNT}/token"), token);
    mount("first");
    api.take_token("first");
    let daemon = node.launch(&mut in_cluster(&node));
    daemon.wait_said(&["Programmed all Services"]);
    let follows = |pod: &str| {
        let since = Instant::now();
        api.apply(SLICES, slice("web", pod));
        let rule = format!("{pod}:8080");
        daemon.wait("the change", || node.has_rule(&rule));
        let took = since.elapsed();
        assert!(took < SOON, "{took:?}\n{}", daemon.log());
    };

    // kubelet is early: the old one is still good for a while, but not for the next watch.
    mount("second");
    api.take_token("second");
    api.break_off();
    follows("10.244.0.6");
    assert_eq!(daemon.said(&["Unauthorized"]), 0, "{}", daemon.log());

    // kubelet is late.
    api.take_token("third");
    api.break_off();
    daemon.wait_said(&["Cannot watch the API server", "Unauthorized"]);
    assert!(node.has_rule("10.244.0.6:8080"), "{:?}", node.rules());
    assert_eq!(node.get("/healthz").unwrap().0, 200);
    mount("third");
    follows("10.244.0.7");
    assert_eq!(daemon.terminate().code(), Some(0));
}
