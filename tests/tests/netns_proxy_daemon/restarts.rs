//! What ends and begins again: the daemon, the API server, pods, the first round.

use std::fs;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, NODES, SERVICES, SLICES};
use seaway_testbed::peer::{Held, PATIENCE, Protocol};
use seaway_testbed::{require_root, write_program};
use serde_json::{Value, json};

use crate::node::{API, Node};
use crate::wide::{NODE_ADDRESS, Wide};
use crate::{fill, service, slice};

/// The Service `web` of this node's pod, at a NodePort as well.
fn node_port(policy: &str) -> Value {
    let mut service = service("web", "10.96.0.1");
    service["spec"]["type"] = json!("NodePort");
    service["spec"]["externalTrafficPolicy"] = json!(policy);
    service["spec"]["ports"][0]["nodePort"] = json!(30080);
    service
}

/// Cases 246 and 251.
#[test]
fn no_connection_notices_a_restart() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    w.api.apply(SERVICES, node_port("Cluster"));
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let mut daemon = Some(w.start(&[]));
    let address = format!("{NODE_ADDRESS}:30080");
    let open = || Held::open(address.parse().unwrap(), PATIENCE);
    let mut held = w.client.enter(open).unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let (answered, failed) = w.load(&address, || {
            let ending = daemon.take().unwrap();
            ending.end(signal);
            held.check().unwrap();
            daemon = Some(w.start(&[]));
        });
        assert!(failed.is_empty() && answered > 0, "{answered}, {failed:?}");
        held.check().unwrap();
    }
    // While there is none, rules stay.
    assert_eq!(daemon.unwrap().terminate().code(), Some(0));
    assert_eq!(w.ask(Protocol::Tcp, &address), "web");
    held.check().unwrap();
}

/// Case 254: each pod of two is replaced by the next, as a rolling update does it.
#[test]
fn a_rolling_update_under_load_loses_next_to_nothing() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let pods = ["10.244.0.5", "10.244.0.6"];
    let serve = |ip: &str| {
        let address = format!("{ip}:8080");
        w.node.netns.serve(Protocol::Tcp, &address, ip)
    };
    let endpoint = |ip: &str, ready: bool| {
        json!({ "addresses": [ip], "nodeName": "a",
                "conditions": { "ready": ready, "serving": true, "terminating": !ready } })
    };
    let apply = |endpoints: Value| {
        let mut slice = slice("web", pods[0]);
        slice["endpoints"] = endpoints;
        w.api.apply(SLICES, slice);
    };
    apply(json!([endpoint(pods[0], true)]));
    for policy in ["Cluster", "Local"] {
        w.api.apply(SERVICES, node_port(policy));
        let daemon = w.start(&[]);
        let address = format!("{NODE_ADDRESS}:30080");
        let mut old = serve(pods[0]);
        let (answered, failed) = w.load(&address, || {
            for turn in 0..4 {
                let (from, to) = (pods[turn % 2], pods[(turn + 1) % 2]);
                let new = serve(to);
                apply(json!([endpoint(from, true), endpoint(to, true)]));
                daemon.wait("the new pod", || w.node.has_rule(&format!("{to}:8080")));
                apply(json!([endpoint(from, false), endpoint(to, true)]));
                daemon.wait("the new pod alone", || w.ask(Protocol::Tcp, &address) == to);
                apply(json!([endpoint(to, true)]));
                daemon.wait("nothing of the old pod", || {
                    !w.node.has_rule(&format!("{from}:8080"))
                });
                // Its connections that are just being answered go with it.
                drop(std::mem::replace(&mut old, new));
            }
        });
        eprintln!("{policy}: {answered} answered, {} not", failed.len());
        assert!(answered > 20 && failed.len() * 20 < answered, "{failed:?}");
        assert_eq!(daemon.terminate().code(), Some(0));
    }
}

/// Case 247.
#[test]
fn an_api_server_that_restarts_is_followed_again() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let daemon = w.start(&[]);
    w.api.down();
    daemon.wait_said(&["Cannot watch the API server"]);
    assert_eq!(w.ask(Protocol::Tcp, "10.96.0.1:80"), "web");
    // What happens meanwhile.
    w.api.delete(SERVICES, service("web", "10.96.0.1"));
    w.api.apply(SERVICES, service("new", "10.96.0.2"));
    w.api.apply(SLICES, slice("new", "10.244.0.5"));
    assert_eq!(w.ask(Protocol::Tcp, "10.96.0.1:80"), "web");
    w.api.up();
    daemon.wait("the new Service", || {
        w.ask(Protocol::Tcp, "10.96.0.2:80") == "web"
    });
    daemon.wait("the deletion", || !w.node.has_rule("10.96.0.1"));
    assert_eq!(w.node.get("/healthz").unwrap().0, 200);
}

/// kube-proxy waits for the next change, or for 30 s at best.
#[test]
fn a_first_round_that_fails_is_tried_again_soon() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let find = "command -v iptables-nft-restore";
    let real = node.netns.must_run(&["sh", "-c", find]);
    let script = format!(
        "#!/bin/sh\nif mkdir {}; then echo 'made to fail' >&2; exit 1; fi 2>/dev/null\nexec {} \"$@\"\n",
        node.path("failed").display(),
        real.trim(),
    );
    fs::create_dir(node.path("bin")).unwrap();
    write_program(&node.path("bin/iptables-nft-restore"), &script);
    let started = Instant::now();
    let daemon = node.start_with("iptables", &["--pod-network", "off"]);
    daemon.wait_said(&["Programmed all Services"]);
    assert!(node.path("failed").exists(), "nothing has failed");
    assert!(node.has_rule("10.244.0.5:8080"), "{:?}", node.rules());
    // A second or two, and what a busy machine adds.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(28), "{took:?}");
}

/// Case 249: with kube-proxy's pace, 100 changes in a second share two rounds or three.
#[test]
fn a_storm_of_changes_keeps_to_the_pace_and_nothing_is_lost() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let daemon = w.start(&["--iptables-min-sync-period", "1s"]);
    let rounds = || {
        let (_, text) = w.node.get_from("127.0.0.1:10249", "/metrics").unwrap();
        let name = "kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(name));
        count.unwrap().parse::<f64>().unwrap()
    };
    let (before, started) = (rounds(), Instant::now());
    let (_keep, pause) = mpsc::channel::<()>();
    for i in 0..100 {
        let name = format!("s{i}");
        w.api
            .apply(SERVICES, service(&name, &format!("10.96.1.{i}")));
        pause.recv_timeout(Duration::from_millis(10)).ok();
    }
    daemon.wait("all of them", || {
        let rules = w.node.rules().concat();
        (0..100).all(|i| rules.contains(&format!("10.96.1.{i}/32")))
    });
    let (rounds, took) = (rounds() - before, started.elapsed().as_secs_f64());
    assert!(
        rounds >= 1.0 && rounds <= took + 2.0,
        "{rounds} in {took} s"
    );
}

/// Cases 10, and 8 and 9 as kube-proxy's iptables mode has them: ServiceCIDRs are not asked
/// for, so no stale one is in the way of a Service.
#[test]
fn addresses_of_services_need_no_range_and_others_are_left_alone() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    // Whose it is while no Service has it.
    let (ip, address) = ("203.0.113.78", "203.0.113.78:80");
    w.other.ip("addr add 203.0.113.78/32 dev lo");
    w.node.netns.ip("route add 203.0.113.78 via 172.31.0.2");
    let _other = w.other.serve(Protocol::Tcp, address, "other");
    let daemon = w.start(&[]);
    for _ in 0..2 {
        daemon.wait("the address' owner", || {
            w.ask(Protocol::Tcp, address) == "other"
        });
        w.api.apply(SERVICES, service("late", ip));
        w.api.apply(SLICES, slice("late", "10.244.0.5"));
        daemon.wait("the Service", || w.ask(Protocol::Tcp, address) == "web");
        w.api.delete(SERVICES, service("late", ip));
    }
    let asked = w.api.requests();
    assert!(asked.iter().all(|path| !path.contains("servicecidrs")));
    assert!(asked.iter().any(|path| path.contains(NODES)));
}
