//! The program `seaway-proxy` as an operator meets it: flags, signals, logs, health,
//! an API server that is late, objects that are wrong, and removal.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "netns_proxy_daemon/api_away.rs"]
mod api_away;
#[path = "netns_proxy_daemon/attachments.rs"]
mod attachments;
#[path = "netns_proxy_daemon/choices.rs"]
mod choices;

#[path = "netns_proxy_daemon/dead_watch.rs"]
mod dead_watch;

#[path = "netns_proxy_daemon/drift.rs"]
mod drift;

#[path = "netns_proxy_daemon/dual.rs"]
mod dual;

#[path = "netns_proxy_daemon/egress.rs"]
mod egress;

#[path = "netns_proxy_daemon/explain.rs"]
mod explain;
#[path = "netns_proxy_daemon/explain_kernels.rs"]
mod explain_kernels;

#[path = "netns_proxy_daemon/killed.rs"]
mod killed;

#[path = "netns_proxy_daemon/kube_proxy.rs"]
mod kube_proxy;

#[path = "netns_proxy_daemon/load.rs"]
mod load;

#[path = "netns_proxy_daemon/mtu.rs"]
mod mtu;

#[path = "netns_proxy_daemon/objects.rs"]
mod objects;

#[path = "netns_proxy_daemon/pair.rs"]
mod pair;

#[path = "netns_proxy_daemon/pod_network.rs"]
mod pod_network;

#[path = "netns_proxy_daemon/pools.rs"]
mod pools;

#[path = "netns_proxy_daemon/node.rs"]
mod node;

#[path = "netns_proxy_daemon/reports.rs"]
mod reports;

#[path = "netns_proxy_daemon/restarts.rs"]
mod restarts;
#[path = "netns_proxy_daemon/rolling.rs"]
mod rolling;
#[path = "netns_proxy_daemon/sets.rs"]
mod sets;
#[path = "netns_proxy_daemon/switches.rs"]
mod switches;

#[path = "netns_proxy_daemon/takeover.rs"]
mod takeover;

#[path = "netns_proxy_daemon/tuning.rs"]
mod tuning;

#[path = "netns_proxy_daemon/upkeep.rs"]
mod upkeep;

#[path = "netns_proxy_daemon/uplink.rs"]
mod uplink;

#[path = "netns_proxy_daemon/uplink_changes.rs"]
mod uplink_changes;

#[path = "netns_proxy_daemon/wide.rs"]
mod wide;

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use nix::sys::signal::Signal;
use node::{API, CONF, HEALTHZ, Node};
use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{bin, require_root};
use serde_json::{Value, json};

fn service(name: &str, ip: &str) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": { "clusterIP": ip, "clusterIPs": [ip], "ports": [{ "port": 80, "protocol": "TCP" }] },
    })
}

fn slice(service: &str, ip: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": format!("{service}-x"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [ip], "conditions": { "ready": true }, "nodeName": "a" }],
        "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
    })
}

fn node(name: &str, ip: &str, cidr: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": cidr, "podCIDRs": [cidr] },
        "status": { "addresses": [{ "type": "InternalIP", "address": ip }] },
    })
}

fn fill(api: &FakeApi) {
    api.apply(SERVICES, service("web", "10.96.0.1"));
    api.apply(SLICES, slice("web", "10.244.0.5"));
    api.apply(NODES, node("a", "172.30.0.11", "10.244.0.0/24"));
    api.apply(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
}

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
fn without_an_api_server_it_lives_waits_and_touches_nothing() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (rules, tables) = (node.rules(), node.nft());
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
    assert!(!node.path(CONF).exists());
    // The same outage is not told again and again.
    assert!(daemon.said(&["Cannot watch"]) <= 3, "{}", daemon.log());
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_late_api_server_is_followed_and_everything_stays_until_cleanup() {
    if !require_root() {
        return;
    }
    for mode in ["iptables", "ebpf"] {
        follow(mode);
    }
}

fn rules_or_objects(mode: &str) -> &'static str {
    match mode {
        "ebpf" => "the BPF objects",
        _ => "the iptables rules",
    }
}

fn follow(mode: &str) {
    let node_a = Node::new();
    let (rules, tables, pins) = (node_a.rules(), node_a.nft(), node_a.pins());
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let daemon = node_a.start(mode);
    daemon.wait_said(&["Cannot watch the API server"]);
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    daemon.wait("the CNI conf", || node_a.path(CONF).exists());
    let conf: Value = serde_json::from_slice(&fs::read(node_a.path(CONF)).unwrap()).unwrap();
    assert_eq!(
        conf["plugins"][0]["ipam"]["ranges"][0]["subnet"],
        "10.244.0.0/24"
    );
    assert_eq!(conf["plugins"][0]["mtu"], 1430);
    // The conf promises a network, so all of it has to be there already.
    assert!(
        node_a.routes().contains("10.244.1.0/24 via 172.30.0.12"),
        "{}",
        node_a.routes()
    );
    assert!(
        node_a.ask("10.96.0.1:80").contains("web"),
        "{}",
        daemon.log()
    );
    assert_eq!(node_a.get("/healthz").unwrap().0, 200);

    api.apply(SLICES, slice("web", "10.244.0.6"));
    api.delete(SLICES, slice("web", "10.244.0.6"));
    daemon.wait("a refused Service", || {
        node_a.ask("10.96.0.1:80").contains("refused")
    });
    api.apply(SLICES, slice("web", "10.244.0.5"));
    daemon.wait("an answering Service", || {
        node_a.ask("10.96.0.1:80").contains("web")
    });
    api.delete(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
    daemon.wait("no route to b", || {
        !node_a.routes().contains("10.244.1.0/24")
    });
    api.apply(NODES, node("c", "172.30.0.13", "10.244.2.0/24"));
    daemon.wait("a route to c", || {
        node_a.routes().contains("10.244.2.0/24 via 172.30.0.13")
    });

    assert_eq!(daemon.terminate().code(), Some(0));
    assert!(node_a.ask("10.96.0.1:80").contains("web"));
    assert!(node_a.routes().contains("10.244.2.0/24"));
    assert!(node_a.path(CONF).exists());
    let said = node_a.cleanup();
    for part in ["the CNI conf", "the pod network", rules_or_objects(mode)] {
        assert!(said.contains(&format!("Removed part=\"{part}\"")), "{said}");
    }
    // The other backend's objects, and what only `install` makes.
    assert_eq!(said.matches("Nothing to remove").count(), 4, "{said}");
    assert_eq!(
        (node_a.rules(), node_a.nft(), node_a.routes().as_str()),
        (rules, tables, "")
    );
    assert_eq!(node_a.pins(), pins);
    assert!(!node_a.path(CONF).exists());
}

#[test]
fn cleanup_tells_what_it_found() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = said(&mut node.command("cleanup"));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("Nothing to remove").count(), 7, "{text}");
    assert!(!text.contains("Removed"), "{text}");
    // Where nobody can look, nobody knows.
    let (code, text) = said(node.command("cleanup").env("PATH", "/nowhere"));
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text.matches("Nothing to remove").count(), 6, "{text}");
    assert!(text.contains("remove the iptables rules: "), "{text}");
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

#[test]
fn killed_and_started_again_it_takes_up_what_it_left() {
    if !require_root() {
        return;
    }
    for mode in ["iptables", "ebpf"] {
        let node_a = Node::new();
        let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
        let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
        fill(&api);
        let daemon = node_a.start(mode);
        daemon.wait("the CNI conf", || node_a.path(CONF).exists());
        let written = fs::metadata(node_a.path(CONF)).unwrap().modified().unwrap();
        assert_eq!(daemon.end(Signal::SIGKILL).code(), None);
        assert!(node_a.ask("10.96.0.1:80").contains("web"), "{mode}");
        // What happens meanwhile is found out at the start.
        api.apply(SERVICES, service("new", "10.96.0.2"));
        api.apply(SLICES, slice("new", "10.244.0.5"));
        api.delete(NODES, node("b", "172.30.0.12", "10.244.1.0/24"));
        fs::remove_file(node_a.path("log")).unwrap();
        let daemon = node_a.start(mode);
        daemon.wait_said(&["Programmed all Services"]);
        assert!(
            node_a.ask("10.96.0.2:80").contains("web"),
            "{mode}: {}",
            daemon.log()
        );
        daemon.wait("no route to b", || {
            !node_a.routes().contains("10.244.1.0/24")
        });
        // The same conf, so the runtime has seen no change.
        assert_eq!(
            fs::metadata(node_a.path(CONF)).unwrap().modified().unwrap(),
            written
        );
        assert_eq!(daemon.terminate().code(), Some(0));
        node_a.cleanup();
    }
}

#[test]
fn a_conf_of_an_earlier_boot_is_withdrawn_at_the_start() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    fs::create_dir_all(node.path("net.d")).unwrap();
    fs::write(node.path(CONF), "{}").unwrap();
    fs::write(node.path("net.d/10-other.conf"), "{}").unwrap();
    let daemon = node.start("iptables");
    daemon.wait("no conf", || !node.path(CONF).exists());
    assert!(node.path("net.d/10-other.conf").exists());
}

#[test]
fn a_conf_that_cannot_be_written_is_told_once_with_its_path() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    // Files can be made there by nobody.
    std::os::unix::fs::symlink("/proc/self", node.path("net.d")).unwrap();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("off");
    let told = ["WARN", "Cannot write the CNI conf", CONF];
    daemon.wait_said(&told);
    let attempts = || {
        let (_, text) = node.get_from("127.0.0.1:10249", "/metrics").unwrap();
        let line = "seaway_pod_network_sync_failures_total ";
        let count = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        count.parse::<u32>().unwrap()
    };
    daemon.wait("three attempts", || attempts() >= 3);
    assert_eq!(daemon.said(&told), 1, "{}", daemon.log());
    let (_, body) = node.get("/healthz").unwrap();
    assert!(body.contains("CNIConf"), "{body}");
    fs::remove_file(node.path("net.d")).unwrap();
    daemon.wait("the CNI conf", || node.path(CONF).exists());
}

#[test]
fn another_backend_takes_over_and_leaves_nothing_of_the_former() {
    if !require_root() {
        return;
    }
    let node_a = Node::new();
    let _web = node_a.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let api = FakeApi::start(&node_a.netns, API.parse().unwrap(), None);
    fill(&api);
    let (rules, pins) = (node_a.rules(), node_a.pins());
    for (mode, other_is_gone) in [
        (
            "iptables",
            Box::new(|| node_a.pins() == pins) as Box<dyn Fn() -> bool>,
        ),
        ("ebpf", Box::new(|| node_a.rules() == rules)),
        ("iptables", Box::new(|| node_a.pins() == pins)),
    ] {
        let daemon = node_a.start(mode);
        daemon.wait_said(&["Programmed all Services", &format!("backend=\"{mode}\"")]);
        daemon.wait("the other backend's removal", &other_is_gone);
        assert!(
            node_a.ask("10.96.0.1:80").contains("web"),
            "{mode}: {}",
            daemon.log()
        );
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

#[test]
fn a_taken_address_keeps_nothing_from_working() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let addr: SocketAddr = HEALTHZ.parse().unwrap();
    let taken = node
        .netns
        .enter(|| std::net::TcpListener::bind(addr))
        .unwrap();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("iptables");
    daemon.wait_said(&["Cannot listen", HEALTHZ]);
    daemon.wait("the CNI conf", || node.path(CONF).exists());
    drop(taken);
    daemon.wait("/livez", || {
        node.get("/livez").is_ok_and(|(code, _)| code == 200)
    });
}

#[test]
fn a_taken_address_is_the_end_if_the_operator_wants_that() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let addr: SocketAddr = HEALTHZ.parse().unwrap();
    let _taken = node
        .netns
        .enter(|| std::net::TcpListener::bind(addr))
        .unwrap();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let flags = [
        "--cluster-cidr",
        "10.244.0.0/16",
        "--bind-address-hard-fail",
    ];
    let daemon = node.start_with("iptables", &flags);
    daemon.wait("the event", || {
        api.requests()
            .iter()
            .any(|request| request.contains("events"))
    });
    let log = daemon.log_path();
    assert_eq!(daemon.ended().code(), Some(1));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("listen on 127.0.0.1:10256"), "{log}");
}

#[test]
fn told_to_stop_it_finishes_what_it_writes() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    node.hold_restore();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let mut daemon = node.start("iptables");
    daemon.wait("a transaction", || node.path("started").exists());
    daemon.signal(Signal::SIGTERM);
    daemon.wait_said(&["Stopping"]);
    assert!(
        daemon.lives(),
        "it left a transaction alone: {}",
        daemon.log()
    );
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(daemon.ended().code(), Some(0));
    assert!(node.has_rule("10.96.0.1"));
}

#[test]
fn told_to_stop_twice_it_ends_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    node.hold_restore();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let daemon = node.start("iptables");
    daemon.wait("a transaction", || node.path("started").exists());
    daemon.signal(Signal::SIGTERM);
    daemon.wait_said(&["Stopping"]);
    assert_eq!(daemon.terminate().code(), Some(1));
}
