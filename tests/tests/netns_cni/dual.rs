//! IPv6, alone and beside IPv4.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, addresses, assert_reaches, pod_path, success};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

#[test]
fn dual_stack_gives_a_pod_both_families() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let result = node.add("c1", &pod);
    assert_eq!(addresses(&result), ["10.244.1.2", "fd00:1:2::2"]);
    assert_eq!(
        result["routes"],
        json!([{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}])
    );
    assert_eq!(result["ips"][1]["interface"], 1);
    let eth0 = &pod.ip_json("addr show eth0 scope global")[0]["addr_info"];
    assert_eq!(eth0[1]["local"], "fd00:1:2::2");
    assert_eq!(eth0[1]["prefixlen"], 128);
    let host = &node.netns.ip_json("link show swec43057c07aa")[0];
    let gateway = &pod.ip_json("-6 neigh show fe80::1")[0];
    assert_eq!(gateway["lladdr"], host["address"]);
    assert_eq!(gateway["state"], json!(["PERMANENT"]));
    let route = &node.netns.ip_json("-6 route show proto 83")[0];
    assert_eq!(
        (&route["dst"], &route["dev"]),
        (&json!("fd00:1:2::2"), &json!("swec43057c07aa"))
    );
    assert_eq!(
        node.records(),
        ["10.244.1.2=c1:eth0", "fd00:1:2::2=c1:eth0"]
    );
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn case_16_no_address_is_tentative_and_bind_works_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let mut fastest = Duration::MAX;
    for n in 0..5 {
        let (id, pod) = (format!("c{n}"), Netns::new("pod"));
        let start = Instant::now();
        let result = node.add(&id, &pod);
        fastest = fastest.min(start.elapsed());
        let address: SocketAddr = format!("[{}]:53", addresses(&result)[1]).parse().unwrap();
        pod.enter(|| UdpSocket::bind(address)).unwrap();
        let index = pod.ip_json("link show eth0")[0]["ifindex"].clone();
        assert_reaches(&pod, &format!("fe80::1%{index}"));
        for netns in [&pod, &node.netns] {
            assert_eq!(netns.ip_json("-6 addr show tentative"), json!([]));
        }
        node.del(&id, "");
    }
    // DAD would take a second and more each time; a loaded machine is not that slow every time.
    assert!(fastest < Duration::from_millis(700), "{fastest:?}");
    node.assert_empty();
}

#[test]
fn pods_and_node_reach_each_other_over_both_families() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let (ips_a, ips_b) = (addresses(&node.add("a", &a)), addresses(&node.add("b", &b)));
    for (from, to) in [
        (&node.netns, ips_a[0].as_str()),
        (&node.netns, &ips_a[1]),
        (&a, &ips_b[0]),
        (&a, &ips_b[1]),
        (&b, &ips_a[1]),
        (&b, "172.30.0.11"),
        (&b, "fd00:172::11"),
    ] {
        assert_reaches(from, to);
    }
    let _web = b.serve(Tcp, "[::]:80", "b");
    let answer = a.ask(Tcp, &format!("[{}]:80", ips_b[1])).unwrap();
    assert_eq!(answer.client.ip().to_string(), ips_a[1]);
    for netns in [&node.netns, &a, &b] {
        for entry in netns.ip_json("neigh").as_array().unwrap() {
            assert_eq!(entry["state"], json!(["PERMANENT"]), "{entry}");
        }
    }
}

#[test]
fn case_18_ipv6_that_is_off_in_the_pod_is_switched_on() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&["fd00:1:2::/64"]), Netns::new("pod"));
    for conf in ["all", "default", "lo"] {
        pod.sysctl(&format!("ipv6/conf/{conf}/disable_ipv6"), "1");
    }
    node.netns.sysctl("ipv6/conf/default/disable_ipv6", "1");
    let result = node.add("c1", &pod);
    assert_eq!(addresses(&result), ["fd00:1:2::2"]);
    assert_reaches(&node.netns, "fd00:1:2::2");
    assert_reaches(&pod, "::1");
    assert_eq!(pod.ip_json("-4 addr show eth0"), json!([]));
}

#[test]
fn case_17_a_kernel_without_ipv6() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&["10.244.1.0/24"]);
    let hidden = |node: &Node, id: &str, pod: &Netns| {
        let plain = node.command("ADD", id, pod_path(pod));
        let mut command = node.netns.command("unshare");
        command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        // As with ipv6.disable=1 there is no /proc/sys/net/ipv6.
        let script = "mount -t tmpfs none /proc/sys/net/ipv6 && exec \"$0\"";
        command
            .args(["--mount", "sh", "-c", script])
            .arg(&node.program)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        crate::node::feed(command, &node.conf)
    };
    let pod = Netns::new("pod");
    success(&hidden(&node, "c1", &pod));
    assert_reaches(&node.netns, "10.244.1.2");
    node.conf["ipam"]["ranges"] = json!([{"subnet": BOTH[0]}, {"subnet": BOTH[1]}]);
    let error = crate::node::failure(&hidden(&node, "c2", &Netns::new("pod2")));
    assert_eq!(error["code"], 7);
    assert!(
        error["msg"].as_str().unwrap().contains("has no IPv6"),
        "{error}"
    );
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}

#[test]
fn case_31_dual_stack_is_all_or_nothing() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/126"]);
    let pods: Vec<Netns> = (0..3).map(|_| Netns::new("pod")).collect();
    node.add("c0", &pods[0]);
    node.add("c1", &pods[1]);
    let error = node.fails("ADD", "c2", pod_path(&pods[2]));
    assert_eq!(error["code"], 11);
    assert_eq!(
        error["msg"],
        "no free address in fd00:1:2::/126: all 2 are taken, by 2 attachments: \
         default/web (container c0:eth0), default/web (container c1:eth0)"
    );
    assert_eq!(node.records().len(), 4);
    assert_eq!(pods[2].ip_json("link").as_array().unwrap().len(), 1);
    node.del("c0", "");
    node.add("c2", &pods[2]);
    for id in ["c1", "c2"] {
        node.del(id, "");
    }
    node.assert_empty();
}

/// Router advertisements of the uplink keep the node's default route.
#[test]
fn forwarding_does_not_make_the_uplink_deaf() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    node.netns.ip("link add up0 type veth peer name far0");
    node.netns.sysctl("ipv6/conf/up0/accept_ra", "1");
    node.add("c1", &pod);
    let read = |key: &str| {
        let path = format!("/proc/sys/net/ipv6/conf/{key}");
        let text = node.netns.enter(|| std::fs::read_to_string(path)).unwrap();
        text.trim().to_owned()
    };
    assert_eq!(read("all/forwarding"), "1");
    assert_eq!(read("up0/accept_ra"), "2");
    assert_eq!(read("swec43057c07aa/accept_ra"), "0");
}
