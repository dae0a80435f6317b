//! What controllers do to objects when pods come, end and move, in the order in which they do it.

use std::net::UdpSocket;
use std::time::Duration;

use seaway_testbed::Netns;
use seaway_testbed::fake_api::{SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::require_root;
use serde_json::{Value, json};

use crate::node::Daemon;
use crate::wide::{NODE_ADDRESS, Wide};
use crate::{fill, service, slice};

/// A program that sends from one port for ever.
struct Sender(UdpSocket);

impl Sender {
    fn new(from: &Netns, to: &str) -> Self {
        let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        socket.connect(to).unwrap();
        let patience = Duration::from_millis(100);
        socket.set_read_timeout(Some(patience)).unwrap();
        Self(socket)
    }

    /// Who answers the next datagram, if anybody does.
    fn ask(&self) -> Option<String> {
        self.0.send(b"who?").ok()?;
        let mut room = [0; 200];
        let length = self.0.recv(&mut room).ok()?;
        let text = String::from_utf8_lossy(&room[..length]);
        text.split(' ').next().map(str::to_owned)
    }

    #[track_caller]
    fn is_answered_by(&self, daemon: &Daemon, name: &str) {
        daemon.wait(name, || self.ask().as_deref() == Some(name));
    }
}

fn dns(spec: &Value) -> Value {
    let mut object = service("dns", "10.96.0.53");
    object["spec"]["ports"] = json!([{ "port": 53, "protocol": "UDP", "nodePort": 30053 }]);
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "198.51.100.1" }] } });
    object
}

/// Its slice with these endpoints: address, node, and whether it is ready or on its way out.
fn of_dns(endpoints: &[(&str, &str, bool)]) -> Value {
    let mut object = slice("dns", "10.244.0.5");
    object["ports"] = json!([{ "name": "", "port": 8080, "protocol": "UDP" }]);
    let endpoint = |(ip, node, ready): &(&str, &str, bool)| {
        json!({ "addresses": [ip], "nodeName": node,
                "conditions": { "ready": ready, "serving": ready, "terminating": !ready } })
    };
    object["endpoints"] = endpoints.iter().map(endpoint).collect();
    object
}

/// The pod ends, then it is gone, then there is another: a `DaemonSet`, or a move.
fn replaced(w: &Wide, old: (&str, &str), new: (&str, &str)) {
    w.api.apply(SLICES, of_dns(&[(old.0, old.1, false)]));
    w.api.apply(SLICES, of_dns(&[]));
    w.api.apply(SLICES, of_dns(&[(new.0, new.1, false)]));
    w.api.apply(SLICES, of_dns(&[(new.0, new.1, true)]));
}

/// Cases 202, 205 and 206.
#[test]
fn datagrams_follow_pods_that_restart_and_move() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let (first, second) = (("10.244.0.5", "a"), ("10.244.0.6", "a"));
    let elsewhere = ("10.244.1.7", "b");
    let mut servers = Vec::new();
    for (netns, (ip, _)) in [
        (&w.node.netns, first),
        (&w.node.netns, second),
        (&w.other, elsewhere),
    ] {
        servers.push(netns.serve(Protocol::Udp, &format!("{ip}:8080"), ip));
    }
    w.api.apply(SLICES, of_dns(&[(first.0, first.1, true)]));
    // A DaemonSet's pod, which only its own node asks.
    w.api
        .apply(SERVICES, dns(&json!({ "internalTrafficPolicy": "Local" })));
    let daemon = w.start(&[]);
    let local = Sender::new(&w.client, "10.96.0.53:53");
    local.is_answered_by(&daemon, first.0);
    replaced(&w, first, second);
    local.is_answered_by(&daemon, second.0);

    w.api
        .apply(SERVICES, dns(&json!({ "type": "LoadBalancer" })));
    let balanced = [
        "198.51.100.1:53".to_owned(),
        format!("{NODE_ADDRESS}:30053"),
    ];
    let senders = balanced.map(|to| Sender::new(&w.client, &to));
    let mut there = second;
    for next in [elsewhere, first, second] {
        for sender in &senders {
            sender.is_answered_by(&daemon, there.0);
        }
        replaced(&w, there, next);
        there = next;
    }
    for sender in &senders {
        sender.is_answered_by(&daemon, there.0);
    }
}

/// Cases 220, 221, 222, 226 and 228.
#[test]
fn health_checks_follow_pods_and_traffic_is_served_meanwhile() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let balanced = |health: u16| {
        let mut object = service("web", "10.96.0.1");
        object["spec"]["type"] = json!("LoadBalancer");
        object["spec"]["externalTrafficPolicy"] = json!("Local");
        object["spec"]["healthCheckNodePort"] = json!(health);
        object["spec"]["ports"] = json!([
            { "name": "", "port": 80, "nodePort": 30080 },
            { "name": "too", "port": 81, "nodePort": 30081 },
        ]);
        object
    };
    let pods = |conditions: &[(&str, Value)]| {
        let mut object = slice("web", "10.244.0.5");
        object["ports"] = json!([{ "name": "", "port": 8080 }, { "name": "too", "port": 8080 }]);
        let endpoint = |(ip, conditions): &(&str, Value)| json!({ "addresses": [ip], "nodeName": "a", "conditions": conditions });
        object["endpoints"] = conditions.iter().map(endpoint).collect();
        w.api.apply(SLICES, object);
    };
    let (ready, leaving) = (
        json!({ "ready": true }),
        json!({ "ready": false, "serving": true, "terminating": true }),
    );
    let daemon = w.start(&["--nodeport-addresses", "192.0.2.0/24"]);
    let check = |port: u16| w.node.get_from(&format!("{NODE_ADDRESS}:{port}"), "/");
    let is = |port: u16, code: u16, count: &str| {
        let count = format!("\"localEndpoints\":{count}");
        daemon.wait(&format!("{code}, {count}"), || {
            check(port).is_ok_and(|(got, body)| got == code && body.contains(&count))
        });
    };
    let ask = || w.ask(Protocol::Tcp, &format!("{NODE_ADDRESS}:30080"));
    pods(&[("10.244.0.5", ready.clone()), ("10.244.0.6", ready)]);
    w.api.apply(SERVICES, balanced(32100));
    is(32100, 200, "2");
    // Nowhere else than at addresses of NodePorts.
    assert!(w.node.get_from("172.30.0.11:32100", "/").is_err());
    assert!(w.node.get_from("127.0.0.1:32100", "/").is_err());
    pods(&[("10.244.0.5", leaving)]);
    is(32100, 503, "0");
    assert_eq!(ask(), "web", "served while it terminates");
    w.api.apply(SERVICES, balanced(32200));
    is(32200, 503, "0");
    assert!(check(32100).is_err(), "the old port is closed");
    pods(&[]);
    daemon.wait("a refusal", || ask() == "ConnectionRefused");
    is(32200, 503, "0");
}

/// Case 252.
#[test]
fn each_family_has_its_own_addresses_only() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let mut both = service("web", "10.96.0.1");
    both["spec"]["clusterIPs"] = json!(["10.96.0.1", "fd00:96::1"]);
    both["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    let mut v6 = slice("web", "fd00:244::5");
    v6["metadata"]["name"] = json!("web-v6");
    v6["addressType"] = json!("IPv6");
    w.api.apply(SLICES, v6);
    w.api.apply(SERVICES, both);
    let daemon = w.start(&[]);
    let save = |program: &str| w.node.netns.must_run(&[program]);
    daemon.wait("both families", || {
        save("iptables-save").contains("10.244.0.5:8080")
            && save("ip6tables-save").contains("[fd00:244::5]:8080")
    });
    assert!(!save("iptables-save").contains("fd00"));
    let v6 = save("ip6tables-save");
    assert!(
        v6.contains("fd00:96::1/128") && !v6.contains("10.96"),
        "{v6}"
    );
}

/// Case 48: what the controller makes of pods that have failed, been evicted, or are done.
#[test]
fn a_pod_that_has_ended_is_refused_and_not_waited_for() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let daemon = w.start(&[]);
    let ask = || w.ask(Protocol::Tcp, "10.96.0.1:80");
    let mut unready = slice("web", "10.244.0.5");
    unready["endpoints"][0]["conditions"] =
        json!({ "ready": false, "serving": false, "terminating": false });
    let mut none = slice("web", "10.244.0.5");
    none["endpoints"] = json!([]);
    for ended in [unready, none] {
        w.api.apply(SLICES, slice("web", "10.244.0.5"));
        daemon.wait("the pod", || ask() == "web");
        w.api.apply(SLICES, ended);
        daemon.wait("a refusal", || ask() == "ConnectionRefused");
    }
}

/// Cases 21, 22 and 23, as a watch with kube-proxy's selectors tells them: as deletions.
#[test]
fn labels_that_come_and_go_take_services_and_slices_along() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let daemon = w.start(&[]);
    let ask = || w.ask(Protocol::Tcp, "10.96.0.1:80");
    let (web, of_web) = (service("web", "10.96.0.1"), slice("web", "10.244.0.5"));
    for _ in 0..2 {
        daemon.wait("the pod", || ask() == "web");
        w.api.delete(SERVICES, web.clone());
        daemon.wait("no rule", || !w.node.has_rule("10.96.0.1"));
        w.api.apply(SERVICES, web.clone());
        daemon.wait("the pod", || ask() == "web");
        w.api.delete(SLICES, of_web.clone());
        daemon.wait("a refusal", || ask() == "ConnectionRefused");
        w.api.apply(SLICES, of_web.clone());
    }
}

/// As controllers of load balancers have written it, and as the API server hands it on.
#[test]
fn a_condition_without_a_time_hurts_no_service_not_even_its_own() {
    if !require_root() {
        return;
    }
    let w = Wide::new();
    fill(&w.api);
    let _web = w.node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
    let odd = |address: &str| {
        let mut object = service("odd", address);
        object["spec"]["type"] = json!("LoadBalancer");
        object["status"]["conditions"] = json!([{
            "type": "LoadBalancerPortsError", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": null,
        }]);
        object
    };
    w.api.apply(SERVICES, odd("10.96.0.2"));
    w.api.apply(SLICES, slice("odd", "10.244.0.5"));
    let daemon = w.start(&[]);
    for (address, now) in [("10.96.0.1:80", "web"), ("10.96.0.2:80", "web")] {
        daemon.wait(now, || w.ask(Protocol::Tcp, address) == now);
    }
    w.api.apply(SERVICES, odd("10.96.0.3"));
    daemon.wait("its change", || {
        w.ask(Protocol::Tcp, "10.96.0.3:80") == "web"
    });
    w.api.delete(SERVICES, odd("10.96.0.3"));
    daemon.wait("its end", || !w.node.has_rule("10.96.0.3"));
}
