//! `explain` and `status`, with a daemon and without.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::node::{API, Node};
use crate::{fill, service};
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::{bin, require_root};

const FLAGS: [&str; 2] = ["--cluster-cidr", "10.244.0.0/16"];

/// Exit code, what is printed, what is said.
fn told(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

pub(crate) fn explain(node: &Node, mode: &str, words: &[&str]) -> (i32, String, String) {
    explain_beside(node, mode, &FLAGS, words)
}

/// With these flags of the daemon's, for where there is none.
pub(crate) fn explain_beside(
    node: &Node,
    mode: &str,
    flags: &[&str],
    words: &[&str],
) -> (i32, String, String) {
    let mut command = node.command("explain");
    command.arg("--kubeconfig").arg(node.path("kubeconfig"));
    command.args(["--node-name", "a", "--service-proxy", mode]);
    command.args(flags).args(words);
    told(command)
}

fn as_json(node: &Node, mode: &str, address: &str) -> (i32, Value) {
    let (code, text, said) = explain(node, mode, &[address, "--output", "json"]);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {said}"));
    (code, value)
}

pub(crate) fn status(node: &Node) -> (i32, String, Value) {
    let (code, text, _) = told(node.command("status"));
    let mut command = node.command("status");
    command.args(["--output", "json"]);
    (code, text, serde_json::from_str(&told(command).1).unwrap())
}

/// Two endpoints, of which one is not ready, and a second Service that wants the same address.
fn filled(node: &Node) -> FakeApi {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let mut slice = crate::slice("web", "10.244.0.5");
    let unready = json!({
        "addresses": ["10.244.1.7"], "conditions": { "ready": false }, "nodeName": "b",
    });
    slice["endpoints"].as_array_mut().unwrap().push(unready);
    api.apply(SLICES, slice);
    let mut thief = service("thief", "10.96.0.77");
    thief["spec"]["externalIPs"] = json!(["10.96.0.1"]);
    api.apply(SERVICES, thief);
    api
}

#[track_caller]
pub(crate) fn check(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// The line of the only rule in nat that holds `part`, as it is deleted by.
fn rule(node: &Node, part: &str) -> String {
    let dump = node.netns.must_run(&["iptables-save", "-t", "nat"]);
    let mut rules = dump.lines().filter(|line| line.contains(part));
    let rule = rules
        .next()
        .unwrap_or_else(|| panic!("{part} is not in {dump}"));
    rule.to_owned()
}

fn delete(node: &Node, rule: &str) {
    let delete = format!("iptables -t nat {}", rule.replacen("-A ", "-D ", 1));
    node.netns.must_run(&["sh", "-c", &delete]);
}

#[test]
fn a_rule_altered_by_hand_is_named_with_a_daemon_and_without() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || status(&node).0 == 0);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 0, "{text}");
    let facts = [
        "10.96.0.1:80/TCP: clusterIP of Service default/web",
        "internalTrafficPolicy: Cluster  (applies here)",
        "10.244.0.5:8080 on node a (this one), answers under policy Cluster",
        "10.244.1.7:8080 on node b, left out under policy Cluster: not ready",
        "Service default/thief: spec.ports[0]: 10.96.0.1:80/TCP belongs to default/web",
        "-j DNAT --to-destination 10.244.0.5:8080",
        "the kernel is as it should be",
    ];
    check(&text, &facts);
    let (code, value) = as_json(&node, "iptables", "10.96.0.1:80");
    assert_eq!((code, &value["agree"]), (0, &json!(true)), "{value}");
    assert_eq!(value["served"]["service"], "web");
    assert_eq!(value["kernel"]["backend"], "iptables");

    // The daemon may repair it meanwhile, so a look may come too late.
    let lost = rule(&node, "--to-destination 10.244.0.5:8080");
    let seen = (0..5).any(|_| {
        if rule_is_there(&node, &lost) {
            delete(&node, &lost);
        }
        let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
        code == 1 && text.contains("missing") && text.contains(&lost)
    });
    assert!(seen, "{lost} was never missed: {}", daemon.log());
    daemon.end(Signal::SIGKILL);

    // Nobody repairs any more.
    if rule_is_there(&node, &lost) {
        delete(&node, &lost);
    }
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text} {said}");
    check(
        &text,
        &["the daemon does not run; computed from the API now"],
    );
    check(&text, &["missing in nat, chain SEAWAY-SVC-", &lost]);
    check(&text, &facts[..5]);
    let (code, value) = as_json(&node, "iptables", "10.96.0.1:80");
    assert_eq!((code, &value["daemon"]), (1, &json!(false)));
    let difference = &value["kernel"]["differences"][0];
    assert_eq!(difference["want"], json!(lost), "{value}");
    assert_eq!(difference["deviation"], "missing");
    // Another Service is whole.
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.77:80"]);
    assert_eq!(code, 0, "{text} {said}");
    // A changed one, back in its place.
    let other = lost.replace("10.244.0.5:8080", "10.244.0.9:8080");
    node.netns
        .must_run(&["sh", "-c", &format!("iptables -t nat {other}")]);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["different", "wanted ", &lost, "found ", &other]);
    let (code, text, _) = status(&node);
    assert_eq!((code, text.trim()), (1, "the daemon does not run"));
}

fn rule_is_there(node: &Node, rule: &str) -> bool {
    let dump = node.netns.must_run(&["iptables-save", "-t", "nat"]);
    dump.lines().any(|line| line == rule)
}

#[test]
fn clients_are_told_apart_and_nobody_is_served_elsewhere() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = filled(&node);
    let mut local = service("local", "10.96.0.3");
    local["spec"]["type"] = json!("NodePort");
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    local["spec"]["ports"][0]["nodePort"] = json!(30080);
    api.apply(SERVICES, local);
    let mut elsewhere = crate::slice("local", "10.244.1.8");
    elsewhere["endpoints"][0]["nodeName"] = json!("b");
    api.apply(SLICES, elsewhere);
    let mut vip = service("vip", "10.96.0.4");
    vip["spec"]["type"] = json!("LoadBalancer");
    vip["spec"]["sessionAffinity"] = json!("ClientIP");
    vip["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    vip["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.9" }] } });
    api.apply(SERVICES, vip);
    api.apply(SLICES, crate::slice("vip", "10.244.0.6"));
    let daemon = node.start("iptables");
    daemon.wait("the first sync", || status(&node).0 == 0);
    for (from, expect) in [
        (
            "10.244.0.5",
            "this node itself: answered by 10.244.1.8:8080, masqueraded",
        ),
        (
            "10.244.0.99",
            "a pod of this node: answered by 10.244.1.8:8080\n",
        ),
        (
            "172.30.0.11",
            "this node itself: answered by 10.244.1.8:8080, masqueraded",
        ),
        (
            "10.244.1.8",
            "a pod of another node: dropped: no endpoint on this node",
        ),
        (
            "192.0.2.1",
            "a client from outside: dropped: no endpoint on this node",
        ),
    ] {
        let (code, text, said) = explain(&node, "iptables", &["172.30.0.11:30080", "--from", from]);
        assert_eq!(code, 0, "{from}: {text} {said}");
        check(
            &text,
            &[
                "NodePort of Service default/local",
                &format!("{from}, {expect}"),
            ],
        );
        check(&text, &["left out under policy Local: not on this node"]);
    }
    let (code, text, said) = explain(&node, "iptables", &["192.0.2.9:80", "--from", "8.8.8.8"]);
    assert_eq!(code, 0, "{text} {said}");
    check(
        &text,
        &[
            "load balancer IP of Service default/vip",
            "loadBalancerSourceRanges: 192.0.2.0/24",
            "sessionAffinity: ClientIP, 10800 s",
            "8.8.8.8, a client from outside: dropped: not within spec.loadBalancerSourceRanges",
            "-A SEAWAY-FW-",
            "--add-set SEAWAY-4-",
            "set SEAWAY-4-",
        ],
    );
    let (code, text, said) = explain(&node, "iptables", &["[fd00:96::9]:80/UDP"]);
    assert_eq!(code, 0, "{text} {said}");
    check(&text, &["no Service port is served here", "-A PREROUTING"]);
    let (code, text, _) = explain(&node, "iptables", &["10.96.0.1:81"]);
    assert_eq!(code, 0, "{text}");
    check(
        &text,
        &[
            "no Service port is served here",
            "note: 10.96.0.1:80/TCP is default/web's",
        ],
    );
    let (code, text, value) = status(&node);
    assert_eq!(code, 0, "{text}");
    check(
        &text,
        &["node a: in sync", "pending changes: 0", "CNI conf there"],
    );
    assert_eq!(value["serviceProxy"]["services"], 4);
    assert_eq!(value["serviceProxy"]["skipped"], 1);
    assert_eq!(value["podNetwork"]["inSync"], true);
}

#[test]
fn without_a_daemon_its_file_counts_too() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let file = node.path("config.yaml");
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                mode: iptables\niptables: { masqueradeBit: 5 }\n";
    fs::write(&file, text).unwrap();
    let flags = ["--config", file.to_str().unwrap(), FLAGS[0], FLAGS[1]];
    let daemon = node.start_with("iptables", &flags);
    daemon.wait("the first sync", || status(&node).0 == 0);
    daemon.end(Signal::SIGKILL);
    let ask = |flags: &[&str]| {
        let mut command = node.command("explain");
        command.arg("--kubeconfig").arg(node.path("kubeconfig"));
        command
            .args(["--node-name", "a", "10.96.0.1:80"])
            .args(flags);
        told(command)
    };
    let (code, text, said) = ask(&flags);
    assert_eq!(code, 0, "{text} {said}");
    check(&text, &["0x20/0x20", "--service-proxy=iptables"]);
    // Who leaves it out asks about another node.
    let (code, text, _) = ask(&[FLAGS[0], FLAGS[1], "--service-proxy=iptables"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["wanted ", "0x4000/0x4000", "found "]);
}

#[test]
fn ebpf_answers_with_its_maps() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let _api = filled(&node);
    let daemon = node.start("ebpf");
    daemon.wait("the first sync", || status(&node).0 == 0);
    let mut daemon = Some(daemon);
    for alive in [true, false] {
        if !alive && let Some(daemon) = daemon.take() {
            daemon.end(Signal::SIGKILL);
        }
        let (code, text, said) = explain(&node, "ebpf", &["10.96.0.1:80"]);
        assert_eq!(code, 0, "{text} {said}");
        check(
            &text,
            &[
                "slot 10.96.0.1:80/TCP 0 10.244.0.5:8080",
                "link connect4",
                "note: with eBPF",
            ],
        );
        assert_eq!(text.contains("the daemon does not run"), !alive);
    }
    node.remove_pin("links/connect4");
    let (code, text, _) = explain(&node, "ebpf", &["10.96.0.1:80"]);
    assert_eq!(code, 1, "{text}");
    check(&text, &["missing", "link connect4"]);
}

/// The program, run by somebody else, from where that one may start it.
fn as_nobody(verb: &[&str]) -> (i32, String, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("seaway-proxy");
    // By another process: what this one holds open for writing, a child of another thread
    // holds as well for a moment, and then nobody may start it.
    let copied = Command::new("cp")
        .arg(bin("seaway-proxy"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(verb).uid(65534).gid(65534).current_dir("/");
    told(command)
}

#[test]
fn bad_questions_exit_64_and_unanswerable_ones_69() {
    for (words, expect) in [
        ("10.96.0.1", "ADDRESS:PORT"),
        ("web:80", "ADDRESS:PORT"),
        ("10.96.0.1:0", "port 0"),
        ("10.96.0.1:80/ICMP", "ICMP"),
        ("10.96.0.1:80 --from nobody", "--from"),
        ("10.96.0.1:80 --output yaml", "--output"),
        ("", "ADDRESS:PORT"),
    ] {
        let mut command = Command::new(bin("seaway-proxy"));
        command.arg("explain").args(words.split_whitespace());
        let (code, _, said) = told(command);
        assert_eq!(code, 64, "{words}: {said}");
        check(&said, &[expect]);
    }
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 69, "{text} {said}");
    check(&said, &["the daemon does not run", "refused"]);
    for verb in [&["status"][..], &["explain", "10.96.0.1:80"]] {
        let (code, _, said) = as_nobody(verb);
        assert_eq!(code, 69, "{said}");
        check(&said, &["only root may"]);
    }
    // Without a kubeconfig there is nobody to ask.
    let mut command = node.command("explain");
    command.args(FLAGS).arg("10.96.0.1:80");
    let (code, _, said) = told(command);
    assert_eq!(code, 64, "{said}");
    check(&said, &["--kubeconfig"]);
    // Alive, and without the API server's word.
    let daemon = node.start("iptables");
    daemon.wait("the socket", || node.path("run/proxy.sock").exists());
    let (code, text, said) = explain(&node, "iptables", &["10.96.0.1:80"]);
    assert_eq!(code, 69, "{text} {said}");
    check(&said, &["has not told all Services"]);
    assert_eq!(status(&node).0, 1);
    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(!node.path("run/proxy.sock").exists());
}
