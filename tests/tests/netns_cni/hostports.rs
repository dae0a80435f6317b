//! hostPorts: from outside, from the node, from pods; and what DEL leaves.

use std::net::UdpSocket;
use std::time::Duration;

use seaway_testbed::peer::Protocol::{Tcp, Udp};
use seaway_testbed::peer::Server;
use seaway_testbed::{Netns, connect, require_root};
use serde_json::{Value, json};

use crate::node::{Node, addresses, pod_path};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// A node with both families and a neighbour outside.
pub(crate) fn node() -> (Node, Netns) {
    let (node, outside) = (Node::with_ranges(&BOTH), Netns::new("outside"));
    for (a, b) in [
        ("192.0.2.1/24", "192.0.2.2/24"),
        ("198.51.100.1/24", "198.51.100.2/24"),
    ] {
        let ifname = a.split('.').next().unwrap();
        let (up, far) = (format!("up{ifname}"), format!("far{ifname}"));
        connect(&node.netns, &up, a, &outside, &far, b);
    }
    node.netns.ip("addr add fd00:192::1/64 dev up192 nodad");
    outside.ip("addr add fd00:192::2/64 dev far192 nodad");
    outside.ip("route add 10.0.0.0/8 via 192.0.2.1");
    (node, outside)
}

pub(crate) fn mapping(host_ip: &str, host_port: u16, protocol: &str) -> Value {
    json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol, "hostIP": host_ip})
}

#[track_caller]
pub(crate) fn add(node: &mut Node, id: &str, pod: &Netns, ports: &[Value]) -> Value {
    node.conf["runtimeConfig"] = json!({"portMappings": ports});
    let result = node.add(id, pod);
    node.conf["runtimeConfig"] = Value::Null;
    result
}

pub(crate) fn serve(pod: &Netns, name: &str) -> [Server; 2] {
    [Tcp, Udp].map(|protocol| pod.serve(protocol, "[::]:80", name))
}

/// nft's reading of all elements of our maps.
pub(crate) fn elements(node: &Node) -> Vec<String> {
    let mut all = Vec::new();
    for family in ["ip", "ip6"] {
        let listed = node.netns.run(&["nft", "list", "table", family, "seaway"]);
        if !listed.status.success() {
            let error = String::from_utf8_lossy(&listed.stderr);
            assert!(error.contains("No such file"), "{error}");
            continue;
        }
        let table = String::from_utf8(listed.stdout).unwrap();
        for list in table.split("elements = {").skip(1) {
            let list = list.split('}').next().unwrap();
            all.extend(list.split(',').map(|e| e.trim().to_owned()));
        }
    }
    all
}

#[test]
fn case_68_a_host_port_leads_to_the_pod_from_everywhere() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (web, other) = (Netns::new("web"), Netns::new("other"));
    let ports = [mapping("", 8080, "tcp"), mapping("", 8080, "udp")];
    let result = add(&mut node, "web", &web, &ports);
    node.add("other", &other);
    let _servers = serve(&web, "web");
    let own = addresses(&result);
    for (from, host) in [
        (&outside, "192.0.2.1"),
        (&outside, "198.51.100.1"),
        (&outside, "[fd00:192::1]"),
        (&node.netns, "192.0.2.1"),
        (&node.netns, "127.0.0.1"),
        (&node.netns, "127.7.7.7"),
        (&node.netns, "[fd00:192::1]"),
        (&other, "192.0.2.1"),
        (&other, "172.30.0.11"),
        (&other, "[fd00:192::1]"),
        (&web, "192.0.2.1"),
        (&web, "[fd00:192::1]"),
    ] {
        let target = format!("{host}:8080");
        let place = format!("{} to {target}", from.name());
        let answer = from
            .ask(Tcp, &target)
            .unwrap_or_else(|e| panic!("{place}: {e}"));
        assert_eq!(answer.name, "web", "{place}");
        let answer = from
            .ask(Udp, &target)
            .unwrap_or_else(|e| panic!("{place}: {e}"));
        assert_eq!(answer.name, "web", "{place}");
    }
    // A client outside is seen as it is.
    let client = outside.ask(Tcp, "192.0.2.1:8080").unwrap().client.ip();
    assert_eq!(client.to_canonical().to_string(), "192.0.2.2");
    // Only the host's own addresses: another pod's same port is that pod's.
    let address = addresses(&node.add("third", &Netns::new("third")))[0].clone();
    node.del("third", "");
    assert!(outside.ask_tcp(&format!("{address}:8080")).is_err());
    let _plain = other.serve(Tcp, "[::]:8080", "other");
    let other_ip = other.ip_json("-4 addr show eth0")[0]["addr_info"][0]["local"].clone();
    let other_ip = other_ip.as_str().unwrap();
    assert_eq!(
        outside.ask_tcp(&format!("{other_ip}:8080")).unwrap(),
        "other"
    );
    assert_eq!(web.ask_tcp(&format!("{other_ip}:8080")).unwrap(), "other");
    // ::1 stays the host's own.
    let refused = node.netns.ask_tcp("[::1]:8080").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(own.len(), 2);
    node.del("web", pod_path(&web));
    assert_eq!(elements(&node), [""; 0]);
}

#[test]
fn case_68_host_ips_are_honoured() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let pods: Vec<Netns> = (0..4).map(|_| Netns::new("pod")).collect();
    let servers: Vec<_> = pods
        .iter()
        .zip(["a", "b", "local", "six"])
        .map(|(pod, name)| serve(pod, name))
        .collect();
    // The same port at several addresses, each a pod's of its own.
    for (n, ip) in ["192.0.2.1", "198.51.100.1", "127.0.0.1", "fd00:192::1"]
        .into_iter()
        .enumerate()
    {
        add(
            &mut node,
            &format!("c{n}"),
            &pods[n],
            &[mapping(ip, 8080, "tcp")],
        );
    }
    assert_eq!(outside.ask_tcp("192.0.2.1:8080").unwrap(), "a");
    assert_eq!(outside.ask_tcp("198.51.100.1:8080").unwrap(), "b");
    assert_eq!(outside.ask_tcp("[fd00:192::1]:8080").unwrap(), "six");
    assert_eq!(node.netns.ask_tcp("127.0.0.1:8080").unwrap(), "local");
    let refused = node.netns.ask_tcp("172.30.0.11:8080").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    for n in 0..4 {
        node.del(&format!("c{n}"), "");
    }
    assert_eq!(elements(&node), [""; 0]);
    // 0.0.0.0 and :: are all addresses of one family.
    add(&mut node, "v4", &pods[0], &[mapping("0.0.0.0", 53, "tcp")]);
    add(&mut node, "v6", &pods[3], &[mapping("::", 53, "tcp")]);
    assert_eq!(outside.ask_tcp("198.51.100.1:53").unwrap(), "a");
    assert_eq!(outside.ask_tcp("[fd00:192::1]:53").unwrap(), "six");
    drop(servers);
}

/// One socket, as a resolver or a game keeps it: the flow never ends.
fn follows_the_port(client: &str, target: &str, anybody: &str) {
    let (mut node, outside) = node();
    let (first, second) = (Netns::new("first"), Netns::new("second"));
    let _host = node.netns.serve(Udp, anybody, "host");
    let _servers = [serve(&first, "first"), serve(&second, "second")];
    let socket = outside.enter(|| {
        let socket = UdpSocket::bind(client).unwrap();
        socket.connect(target).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        socket
    });
    let ask = || {
        let mut room = [0; 64];
        socket.send(b"who?").unwrap();
        let length = socket.recv(&mut room).unwrap_or_default();
        let text = String::from_utf8_lossy(&room[..length]).into_owned();
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(ask(), "host");
    for (id, pod) in [("first", &first), ("second", &second)] {
        add(&mut node, id, pod, &[mapping("", 5353, "udp")]);
        assert_eq!(ask(), id, "{target}");
        node.del(id, if id == "first" { "" } else { pod_path(pod) });
        // Before another pod's ADD could put it right.
        for family in ["ipv4", "ipv6"] {
            let words = ["conntrack", "-L", "-f", family, "-p", "udp"];
            let flows = node.netns.must_run(&words);
            let to_pods = flows.contains("=10.244.1.") || flows.contains("=fd00:1:2:");
            assert!(!to_pods, "{target}: {flows}");
        }
        assert_eq!(ask(), "host", "{target}");
    }
}

#[test]
fn case_42_udp_flows_follow_the_port_from_pod_to_pod() {
    if require_root() {
        follows_the_port("192.0.2.2:4000", "192.0.2.1:5353", "0.0.0.0:5353");
        follows_the_port("[fd00:192::2]:4000", "[fd00:192::1]:5353", "[::]:5353");
    }
}

#[test]
fn a_damaged_record_does_not_keep_ports_open() {
    if !require_root() {
        return;
    }
    let (mut node, _outside) = node();
    for damage in ["", "{", "[]", "\u{0}"] {
        let pod = Netns::new("pod");
        add(&mut node, "c1", &pod, &[mapping("", 80, "tcp")]);
        for record in node.records() {
            std::fs::write(node.record_dir().join(record), damage).unwrap();
        }
        node.del("c1", "");
        assert_eq!(elements(&node), [""; 0], "{damage:?}");
        assert_eq!(node.records(), [""; 0]);
    }
}

#[test]
fn case_43_check_names_a_port_that_is_gone() {
    if !require_root() {
        return;
    }
    let (mut node, _outside) = node();
    let pod = Netns::new("pod");
    node.conf["runtimeConfig"] = json!({"portMappings": [mapping("", 80, "tcp")]});
    for damage in [
        "flush map ip seaway hostports-any",
        "flush map ip6 seaway hostports-any",
        "flush chain ip seaway hostports-in",
        "flush ruleset",
    ] {
        node.conf["prevResult"] = node.add("c1", &pod);
        assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
        node.netns.must_run(&["nft", damage]);
        let error = node.fails("CHECK", "c1", pod_path(&pod));
        assert!(
            error["msg"].as_str().unwrap().contains("hostPort 80/tcp"),
            "{damage}: {error}"
        );
        node.conf["prevResult"] = Value::Null;
        node.del("c1", "");
    }
}

/// CVE-2020-8558: what listens on the host's loopback is not for pods.
#[test]
fn a_pod_cannot_reach_the_hosts_loopback() {
    if !require_root() {
        return;
    }
    let (mut node, _outside) = node();
    let pod = Netns::new("pod");
    add(&mut node, "c1", &pod, &[mapping("", 80, "tcp")]);
    let _secret = node.netns.serve(Udp, "127.0.0.1:77", "secret");
    pod.ip("addr del 127.0.0.1/8 dev lo");
    pod.sysctl("ipv4/conf/all/route_localnet", "1");
    pod.ip("route add 127.0.0.1 via 169.254.1.1 dev eth0");
    let silent = pod.ask_udp("127.0.0.1:77").unwrap_err();
    assert_eq!(silent.kind(), std::io::ErrorKind::TimedOut);
    // That it is the guard which stops it, and not the test's own routes:
    node.netns
        .must_run(&["nft", "flush chain ip seaway hostports-guard"]);
    assert_eq!(pod.ask_udp("127.0.0.1:77").unwrap(), "secret");
}
