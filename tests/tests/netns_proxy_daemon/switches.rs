//! Another backend, or another flavour of iptables, takes over, and nobody is refused. The
//! oracles are connections and `iptables-save`.

use std::fs;

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, NODES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{XTABLES_WAIT, bin, require_root};

use crate::load::Load;
use crate::node::{API, Node};

const FLAGS: [&str; 4] = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];

fn filled(node: &Node) -> FakeApi {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    crate::fill(&api);
    api.apply(NODES, crate::node("a", "172.30.0.11", "10.244.0.0/24"));
    api
}

/// Asks again and again, until told to stop or for a few minutes.
const ASK: &str = "n=0; while [ ! -e $DIR/stop ] && [ $n -lt 20000 ]; do n=$((n + 1)); \
    $PEER ask tcp 10.96.0.1:80 >> $DIR/answers 2>&1 || echo REFUSED >> $DIR/answers; done";

#[test]
fn a_switch_of_backends_refuses_nobody() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _web = node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let _api = filled(&node);
    let none = node.pins();
    let mut daemon = node.start_with("iptables", &FLAGS);
    daemon.wait_said(&["Programmed all Services"]);
    let mut asker = node.command_inside("sh");
    asker.args(["-c", ASK]).env("PEER", bin("seaway-peer"));
    let mut asker = asker.env("DIR", node.path("")).spawn().unwrap();
    let answers = || fs::read_to_string(node.path("answers")).unwrap_or_default();
    for mode in ["ebpf", "iptables", "ebpf"] {
        assert_eq!(daemon.end(Signal::SIGTERM).code(), Some(0));
        daemon = node.start_with(mode, &FLAGS);
        daemon.wait_said(&["Programmed all Services", &format!("backend=\"{mode}\"")]);
        let before = answers().matches("web").count();
        daemon.wait("more answers, and the other's removal", || {
            let more = answers().matches("web").count() > before + 20;
            let (rules, pins) = (node.has_rule("SEAWAY-SERVICES"), node.pins() != none);
            more && rules == (mode == "iptables") && pins == (mode == "ebpf")
        });
    }
    fs::write(node.path("stop"), "").unwrap();
    asker.wait().unwrap();
    assert!(!answers().contains("REFUSED"), "{}", answers());
}

#[test]
fn a_switch_of_flavours_refuses_nobody_and_leaves_nothing() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _web = node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let _api = filled(&node);
    // By this chain a kubelet tells which flavour it uses.
    let hint = |flavour: &str, what: &str| {
        let program = format!("iptables-{flavour} {XTABLES_WAIT}");
        let words = format!("{program} -t mangle {what} KUBE-IPTABLES-HINT");
        node.netns.must_run(&words.split(' ').collect::<Vec<_>>());
    };
    hint("nft", "-N");
    let mut daemon = node.start_with("iptables", &FLAGS);
    daemon.wait_said(&["Using iptables", "nft"]);
    daemon.wait_said(&["Programmed all Services"]);
    let load = Load::start(&node.netns, &["10.96.0.1:80"]);
    for (from, to) in [("nft", "legacy"), ("legacy", "nft")] {
        hint(from, "-X");
        hint(to, "-N");
        assert_eq!(daemon.end(Signal::SIGTERM).code(), Some(0));
        fs::remove_file(node.path("log")).unwrap();
        daemon = node.start_with("iptables", &FLAGS);
        daemon.wait_said(&["Using iptables", to]);
        daemon.wait_said(&["Programmed all Services"]);
        let rules = |flavour: &str| {
            let dump = node.netns.must_run(&[format!("iptables-{flavour}-save")]);
            dump.contains("SEAWAY-SERVICES")
        };
        assert!(rules(to));
        daemon.wait("the other flavour's removal", || !rules(from));
        let before = load.answered();
        daemon.wait("more answers", || load.answered() > before + 50);
    }
    drop(daemon);
    assert!(load.end() > 100);
}
