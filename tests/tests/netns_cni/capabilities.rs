//! What the runtime asks for one pod: addresses, MAC, ranges, bandwidth.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use seaway_testbed::{Netns, require_root, short_or_long};
use serde_json::{Value, json};

use crate::node::{Node, addresses, assert_reaches, feed, pod_path, success};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

#[test]
fn case_55_addresses_and_mac_that_are_asked_for() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.conf["runtimeConfig"] = json!({
        "ips": ["10.244.1.77/24", "fd00:1:2::77"], "mac": "02:00:00:00:00:77"
    });
    let result = node.add("a", &a);
    assert_eq!(addresses(&result), ["10.244.1.77", "fd00:1:2::77"]);
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:77");
    let eth0 = &a.ip_json("link show eth0")[0];
    assert_eq!(eth0["address"], "02:00:00:00:00:77");
    assert_reaches(&node.netns, "10.244.1.77");
    assert_reaches(&node.netns, "fd00:1:2::77");
    let before = node.records();
    for (ips, code, text) in [
        (
            json!(["10.244.1.77"]),
            100,
            "10.244.1.77 is taken by container a",
        ),
        (json!(["10.244.2.1"]), 7, "10.244.2.1 is in no range"),
        (json!(["10.244.1.1"]), 7, "10.244.1.1 is in no range"),
        (json!(["x"]), 7, "runtimeConfig.ips"),
    ] {
        node.conf["runtimeConfig"] = json!({ "ips": ips });
        let error = node.fails("ADD", "b", pod_path(&b));
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].as_str().unwrap().contains(text), "{error}");
        assert_eq!(node.records(), before);
    }
    // The older ways.
    node.conf["runtimeConfig"] = Value::Null;
    let mut command = node.command("ADD", "b", pod_path(&b));
    command.env("CNI_ARGS", "IP=10.244.1.78;MAC=02:00:00:00:00:78");
    let result = success(&feed(command, &node.conf));
    assert_eq!(addresses(&result)[0], "10.244.1.78");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:78");
    node.conf["args"] = json!({"cni": {"ips": ["10.244.1.79"], "mac": "02:00:00:00:00:79"}});
    let result = node.add("c", &Netns::new("c"));
    assert_eq!(addresses(&result)[0], "10.244.1.79");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:79");
}

#[test]
fn ranges_of_the_runtime_and_a_pod_that_comes_again() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let memory = node.dir.path().join("sticky");
    node.conf["ipam"]["sticky"] = json!(true);
    node.conf["ipam"]["stickyDir"] = json!(memory);
    node.conf["runtimeConfig"] = json!({"ipRanges": [[{"subnet": "10.9.0.0/24"}]]});
    let first = addresses(&node.add("c1", &Netns::new("pod")));
    assert_eq!(first, ["10.9.0.2"]);
    node.del("c1", "");
    // The pod is always default/web here.
    assert_eq!(addresses(&node.add("c2", &Netns::new("pod"))), first);
    node.del("c2", "");
    std::fs::remove_dir_all(node.dir.path().join("cni")).unwrap();
    assert_eq!(addresses(&node.add("c3", &Netns::new("pod"))), first);
}

/// Bytes that arrive at `to` within the time, sent as fast as it goes.
fn transfer(from: &Netns, to: &Netns, address: &str, time: Duration) -> u64 {
    let address: SocketAddr = address.parse().unwrap();
    let listener = to.enter(|| TcpListener::bind(address).unwrap());
    let mut sender = from.enter(|| TcpStream::connect(address).unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    sender.set_write_timeout(Some(time)).unwrap();
    receiver.set_read_timeout(Some(time)).unwrap();
    let end = Instant::now() + time;
    let thread = std::thread::spawn(move || {
        let chunk = [0; 16 * 1024];
        // Ends with the time or with the receiver.
        while Instant::now() < end && sender.write_all(&chunk).is_ok() {}
    });
    let (mut room, mut count) = (vec![0; 64 * 1024], 0);
    while Instant::now() < end {
        count += receiver.read(&mut room).unwrap_or(0) as u64;
    }
    drop(receiver);
    thread.join().unwrap();
    count
}

/// Bits per second.
const RATE: u64 = 20_000_000;
/// The kernel counts Ethernet frames of 1464 bytes here; 1398 of them are TCP's.
const PAYLOAD_PERMILLE: u64 = 955;

/// Percent of what the rate lets through.
fn percent(from: &Netns, to: &Netns, target: &str) -> u64 {
    let time = Duration::from_secs(short_or_long(5, 10));
    let bytes = transfer(from, to, target, time);
    bytes * 100 * 1000 / PAYLOAD_PERMILLE / (RATE / 8 * time.as_secs())
}

#[test]
fn case_67_bandwidth_is_limited_both_ways_and_a_sentinel_burst_is_none() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    for sentinel in [u64::from(u32::MAX), u64::from(u32::MAX) * 8 - 1] {
        node.conf["runtimeConfig"] = json!({"bandwidth": {
            "ingressRate": RATE, "ingressBurst": sentinel,
            "egressRate": RATE, "egressBurst": sentinel,
        }});
        let address = addresses(&node.add("c1", &pod))[0].clone();
        for (from, to, target) in [
            (&node.netns, &pod, address.as_str()),
            (&pod, &node.netns, "172.30.0.11"),
        ] {
            let first = transfer(from, to, &format!("{target}:5001"), Duration::from_secs(1));
            assert!(first <= RATE / 8 * 2, "{target}: {first}");
            // A busy machine makes it slower, never faster.
            let tries: Vec<u64> = (5002..5014)
                .map(|port| percent(from, to, &format!("{target}:{port}")))
                .scan(false, |done, percent| {
                    let go_on = !*done;
                    *done = (95..=105).contains(&percent);
                    go_on.then_some(percent)
                })
                .collect();
            assert!(
                (95..=105).contains(tries.last().unwrap()),
                "{target}: {tries:?} %"
            );
            assert!(
                tries.iter().all(|percent| *percent <= 105),
                "{target}: {tries:?} %"
            );
        }
        node.del("c1", "");
        node.assert_empty();
    }
}
