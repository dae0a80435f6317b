//! CHECK looks at every single thing that ADD has made; DEL needs none of them.

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, pod_path, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];
const HOST_END: &str = "swec43057c07aa";

enum Place {
    Pod,
    Host,
}

/// What is removed, by `ip` where, and what CHECK calls it.
const PARTS: &[(Place, &str, &str)] = &[
    (
        Place::Pod,
        "addr del 10.244.1.2/32 dev eth0",
        "eth0 lost 10.244.1.2",
    ),
    (
        Place::Pod,
        "addr del fd00:1:2::2/128 dev eth0",
        "eth0 lost fd00:1:2::2",
    ),
    (
        Place::Pod,
        "route del default",
        "the default route via 169.254.1.1",
    ),
    (
        Place::Pod,
        "-6 route del default",
        "the default route via fe80::1",
    ),
    (
        Place::Pod,
        "route del 169.254.1.1",
        "the route to 169.254.1.1",
    ),
    (
        Place::Pod,
        "neigh del 169.254.1.1 dev eth0",
        "entry of 169.254.1.1",
    ),
    (Place::Pod, "neigh del fe80::1 dev eth0", "entry of fe80::1"),
    (Place::Pod, "link set eth0 down", "eth0 is down"),
    (Place::Host, "route del 10.244.1.2", "route to 10.244.1.2"),
    (
        Place::Host,
        "-6 route del fd00:1:2::2",
        "route to fd00:1:2::2",
    ),
    (
        Place::Host,
        "neigh del 10.244.1.2 dev swec43057c07aa",
        "entry of 10.244.1.2",
    ),
    (
        Place::Host,
        "neigh del fd00:1:2::2 dev swec43057c07aa",
        "entry of fd00:1:2::2",
    ),
    (
        Place::Host,
        "link set swec43057c07aa down",
        "swec43057c07aa is down",
    ),
    (Place::Host, "link del swec43057c07aa", "eth0 is gone"),
];

fn node() -> Node {
    let mut node = Node::with_ranges(&BOTH);
    // Every pod gets the same addresses.
    node.conf["ipam"]["ranges"] = json!([
        {"subnet": BOTH[0], "rangeStart": "10.244.1.2", "rangeEnd": "10.244.1.2"},
        {"subnet": BOTH[1], "rangeStart": "fd00:1:2::2", "rangeEnd": "fd00:1:2::2"},
    ]);
    node.conf["runtimeConfig"] = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    });
    node
}

/// Adds the pod, and checks it at once, silently.
#[track_caller]
fn add(node: &mut Node, pod: &Netns) {
    node.conf["prevResult"] = Value::Null;
    node.conf["prevResult"] = node.add("c1", pod);
    let checked = node.call("CHECK", "c1", pod_path(pod));
    let silent = checked.stdout.is_empty() && checked.stderr.is_empty();
    assert!(checked.status.success() && silent, "{}", text(&checked));
}

#[track_caller]
fn assert_named(node: &Node, pod: &Netns, damage: &str, named: &str) {
    let error = node.fails("CHECK", "c1", pod_path(pod));
    let message = error["msg"].as_str().unwrap();
    assert!(message.contains(named), "{damage}: {error}");
    assert_eq!(error["code"], 102, "{damage}: {error}");
}

#[test]
fn case_43_each_part_that_is_gone_is_named() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    for (place, damage, named) in PARTS {
        add(&mut node, &pod);
        match place {
            Place::Pod => pod.ip(damage),
            Place::Host => node.netns.ip(damage),
        };
        assert_named(&node, &pod, damage, named);
        node.del("c1", pod_path(&pod));
        assert_eq!(elements(&node), [""; 0], "{damage}");
    }
    node.assert_empty();
}

#[test]
fn case_43_records_and_ports_that_are_gone_are_named() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    for address in ["10.244.1.2", "fd00:1:2::2"] {
        add(&mut node, &pod);
        let record = node.record_dir().join(format!("{address}=c1:eth0"));
        std::fs::remove_file(record).unwrap();
        assert_named(&node, &pod, "record", address);
        // What the record would have said is lost, so the port is removed here.
        node.del("c1", "");
        node.netns.must_run(&["nft", "flush", "ruleset"]);
    }
    for family in ["ip", "ip6"] {
        add(&mut node, &pod);
        let flush = ["nft", "flush", "map", family, "seaway", "hostports-any"];
        node.netns.must_run(&flush);
        assert_named(&node, &pod, family, "hostPort 8080/tcp");
        node.del("c1", "");
    }
    node.assert_empty();
}

#[test]
fn case_43_a_bandwidth_limit_that_is_gone_is_named() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    node.conf["runtimeConfig"] = json!({"bandwidth": {
        "ingressRate": 10_000_000, "ingressBurst": 1_000_000, "egressRate": 10_000_000,
    }});
    for (on_host, name) in [(true, HOST_END), (false, "eth0")] {
        add(&mut node, &pod);
        let netns = if on_host { &node.netns } else { &pod };
        netns.must_run(&["tc", "qdisc", "del", "dev", name, "root"]);
        let named = format!("the bandwidth limit of {name} is gone");
        assert_named(&node, &pod, name, &named);
        node.del("c1", "");
    }
    node.assert_empty();
}

/// What the chain behind us has changed is right as the chain reports it.
#[test]
fn case_44_mac_and_mtu_of_a_later_plugin() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    node.conf["cniVersion"] = json!("1.1.0");
    add(&mut node, &pod);
    for (ip, key, value) in [
        ("link set eth0 mtu 1300", "mtu", json!(1300)),
        ("link set eth0 promisc on", "name", json!("eth0")),
        ("link set eth0 txqueuelen 5", "name", json!("eth0")),
    ] {
        pod.ip(ip);
        node.conf["prevResult"]["interfaces"][1][key] = value;
        let checked = node.call("CHECK", "c1", pod_path(&pod));
        assert!(checked.status.success(), "{ip}: {}", text(&checked));
    }
    node.del("c1", "");
    node.assert_empty();
}

/// It may be an old one, of any form, and the pod must go nevertheless.
#[test]
fn case_38_del_with_every_kind_of_prev_result_and_conf() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (node(), Netns::new("pod"));
    let good = node.conf.clone();
    let old = [
        json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.9.9.9/24"}}),
        json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.9.9.9/24"}]}),
        json!({"cniVersion": "9.9.9", "ips": "nonsense"}),
        json!([]),
        Value::Null,
    ];
    for prev in &old {
        add(&mut node, &pod);
        node.conf["prevResult"] = prev.clone();
        node.del("c1", pod_path(&pod));
        node.assert_empty();
        assert_eq!(elements(&node), [""; 0], "{prev}");
    }
    let data_dir = good["ipam"]["dataDir"].clone();
    for (key, value) in [
        (
            "ipam",
            json!({"type": "seaway", "dataDir": data_dir, "ranges": [{"subnet": "10.9.0.0/24"}]}),
        ),
        ("ipam", json!({"type": "seaway", "dataDir": data_dir})),
        ("runtimeConfig", json!({"portMappings": "nonsense"})),
        ("mtu", json!("large")),
        ("misspelt", json!(1)),
        ("cniVersion", json!("0.3.1")),
        ("cniVersion", Value::Null),
    ] {
        node.conf = good.clone();
        add(&mut node, &pod);
        node.conf["prevResult"] = Value::Null;
        node.conf[key] = value.clone();
        node.del("c1", "");
        node.assert_empty();
        assert_eq!(elements(&node), [""; 0], "{key} {value}");
    }
    // Another network's name, be it by its case only, is another network: its
    // DEL frees nothing of ours and is no error.
    node.conf = good;
    add(&mut node, &pod);
    let before = node.records();
    node.conf["name"] = json!("SEAWAY");
    node.del("c1", "");
    assert_eq!(node.records(), before);
    node.conf["name"] = json!("seaway");
    node.del("c1", "");
    node.assert_empty();
    assert!(
        node.netns
            .run(&["ip", "link", "show", HOST_END])
            .stdout
            .is_empty()
    );
}
