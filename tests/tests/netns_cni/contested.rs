//! hostPorts that others want, too: other pods, old sandboxes, Services.

use std::path::Path;
use std::time::Duration;

use seaway_testbed::{Netns, require_root, wait_until};
use serde_json::json;

use crate::hostports::{add, elements, mapping, node, serve};
use crate::node::{addresses, pod_path};

/// A Service's address with the port of a hostPort is the Service's, whoever
/// translates it; that of the hostPort is not an address of the host.
#[test]
fn case_68_a_cluster_ip_with_the_same_port_is_not_hijacked() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (web, backend, client) = (
        Netns::new("web"),
        Netns::new("backend"),
        Netns::new("client"),
    );
    let ports = [mapping("", 443, "tcp"), mapping("127.0.0.1", 444, "tcp")];
    add(&mut node, "web", &web, &ports);
    let service = addresses(&node.add("backend", &backend));
    node.add("client", &client);
    let _servers = (serve(&web, "web"), serve(&backend, "backend"));
    // As a service proxy does it, earlier and later than we do.
    for priority in [-105, -95] {
        for (family, vip, pod) in [
            ("ip", "10.96.0.10", service[0].clone()),
            ("ip6", "fd00:96::10", format!("[{}]", service[1])),
        ] {
            let dnat = format!("{family} daddr {vip} tcp dport 443 dnat to {pod}:80");
            let chain = |hook: &str| {
                format!("chain {hook} {{\ntype nat hook {hook} priority {priority}\n{dnat}\n}}\n")
            };
            let (output, input) = (chain("output"), chain("prerouting"));
            let rules = format!("table {family} service {{\n{output}{input}}}");
            node.netns.must_run(&["nft", &rules]);
        }
        node.netns.ip("route replace 10.96.0.0/16 dev up192");
        node.netns.ip("-6 route replace fd00:96::/64 dev up192");
        for from in [&client, &node.netns] {
            for vip in ["10.96.0.10:443", "[fd00:96::10]:443"] {
                let place = format!("{} to {vip}, {priority}", from.name());
                assert_eq!(from.ask_tcp(vip).expect(&place), "backend", "{place}");
            }
        }
        // The host's own address with that port is the hostPort's, as before.
        assert_eq!(outside.ask_tcp("192.0.2.1:443").unwrap(), "web");
        assert_eq!(client.ask_tcp("[fd00:192::1]:443").unwrap(), "web");
        assert_eq!(node.netns.ask_tcp("127.0.0.1:444").unwrap(), "web");
        for family in ["ip", "ip6"] {
            node.netns
                .must_run(&["nft", "delete", "table", family, "service"]);
        }
    }
    for id in ["web", "backend", "client"] {
        node.del(id, "");
    }
    assert_eq!(elements(&node), [""; 0]);
}

/// K1 of the bug log: the runtime died, and DEL never came.
#[test]
fn a_dead_pods_port_goes_to_the_next_one() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let ports = [mapping("", 8126, "tcp"), mapping("", 8126, "udp")];
    for (old, new) in [("a", "b"), ("b", "c")] {
        let dead = Netns::new("dead");
        if old == "a" {
            add(&mut node, old, &dead, &ports);
        }
        // With the namespace goes the interface, and nothing else.
        drop(dead);
        let pod = Netns::new("pod");
        let gone = || {
            let links = node.netns.ip_json("link").to_string();
            Ok(if links.contains("\"sw") {
                Err("the dead pod's interface is still there".to_owned())
            } else {
                Ok(())
            })
        };
        wait_until(Duration::from_mins(1), "the kernel", gone).unwrap();
        add(&mut node, new, &pod, &ports);
        let _servers = serve(&pod, new);
        assert_eq!(outside.ask_tcp("192.0.2.1:8126").unwrap(), new);
        assert_eq!(outside.ask_udp("192.0.2.1:8126").unwrap(), new);
        // DELs that come late, twice, with nothing but the name.
        for _ in 0..2 {
            node.del(old, "");
        }
        assert_eq!(outside.ask_tcp("192.0.2.1:8126").unwrap(), new);
        assert_eq!(outside.ask_tcp("[fd00:192::1]:8126").unwrap(), new);
    }
    node.del("c", "");
    assert_eq!(elements(&node), [""; 0]);
}

/// K2 of the bug log: the Service wins, whoever was there first, since its
/// proxy translates first.
#[test]
fn a_node_port_with_the_same_number_wins() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (web, backend) = (Netns::new("web"), Netns::new("backend"));
    let service = addresses(&node.add("backend", &backend))[0].clone();
    let _servers = (serve(&web, "web"), serve(&backend, "backend"));
    let node_port = format!(
        "table ip service {{\nchain in {{\ntype nat hook prerouting priority -100\n\
         fib daddr type local tcp dport 30080 dnat to {service}:80\n}}\n}}"
    );
    let ports = [mapping("", 30080, "tcp")];
    for service_first in [true, false] {
        if service_first {
            node.netns.must_run(&["nft", &node_port]);
        }
        add(&mut node, "web", &web, &ports);
        if !service_first {
            assert_eq!(outside.ask_tcp("192.0.2.1:30080").unwrap(), "web");
            node.netns.must_run(&["nft", &node_port]);
        }
        assert_eq!(outside.ask_tcp("192.0.2.1:30080").unwrap(), "backend");
        node.netns
            .must_run(&["nft", "delete", "table", "ip", "service"]);
        assert_eq!(outside.ask_tcp("192.0.2.1:30080").unwrap(), "web");
        node.del("web", "");
    }
}

#[test]
fn a_port_that_is_taken_is_refused_and_a_stale_one_is_not() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let ports = [mapping("", 80, "tcp")];
    add(&mut node, "a", &a, &ports);
    let before = elements(&node);
    node.conf["runtimeConfig"] = json!({"portMappings": ports});
    let error = node.fails("ADD", "b", pod_path(&b));
    assert_eq!(error["code"], 100);
    let message = error["msg"].as_str().unwrap();
    assert!(message.contains("hostPort 80/tcp is taken"), "{error}");
    assert!(message.contains("container a"), "{error}");
    assert_eq!(elements(&node), before);
    assert_eq!(node.records().len(), 2);
    // Somebody has removed a's record and interface, but not its port.
    std::fs::remove_dir_all(node.record_dir()).unwrap();
    a.ip("link del eth0");
    // b's own address is not a's, which is why the port is seen as stale.
    node.conf["ipam"]["ranges"][0]["rangeStart"] = json!("10.244.1.9");
    node.conf["ipam"]["ranges"][1]["rangeStart"] = json!("fd00:1:2::9");
    node.add("b", &b);
    let _servers = serve(&b, "b");
    assert_eq!(outside.ask_tcp("192.0.2.1:80").unwrap(), "b");
    assert_eq!(outside.ask_tcp("[fd00:192::1]:80").unwrap(), "b");
}

/// In another network, a pod that is gone had the same address.
fn leave_record_of_the_dead(records: &Path, network: &Path) {
    let dir = network.join(records.file_name().unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    let mut found = 0;
    for entry in std::fs::read_dir(records).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if let Some((address, _)) = name.split_once("=a:") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let text = text.replace("\"containerId\":\"a\"", "\"containerId\":\"dead\"");
            std::fs::write(dir.join(format!("{address}=dead:eth0")), text).unwrap();
            found += 1;
        }
    }
    assert!(found > 0);
}

/// Ports are the node's, whatever network a pod is in, and whether or not it has a record.
#[test]
fn a_port_of_another_networks_pod_is_taken() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    add(
        &mut node,
        "a",
        &a,
        &[mapping("", 80, "tcp"), mapping("", 81, "tcp")],
    );
    let _servers = serve(&a, "a");
    let before = elements(&node);
    let records = node.record_dir();
    node.conf["name"] = json!("other");
    node.conf["ipam"]["ranges"] = json!([{"subnet": "10.245.1.0/24"}]);
    node.conf["runtimeConfig"] = json!({"portMappings": [mapping("", 80, "tcp")]});
    leave_record_of_the_dead(&records, &node.dir.path().join("cni/other"));
    for holder in ["container a", "container without a record"] {
        let error = node.fails("ADD", "b", pod_path(&b));
        assert_eq!(error["code"], 100);
        assert!(error["msg"].as_str().unwrap().contains(holder), "{error}");
        assert_eq!(elements(&node), before);
        for port in [80, 81] {
            let address = format!("192.0.2.1:{port}");
            assert_eq!(outside.ask_tcp(&address).unwrap(), "a");
        }
        std::fs::remove_dir_all(&records).ok();
    }
}

#[test]
fn case_39_del_of_an_old_sandbox_leaves_the_new_ones_port() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let (old, new) = (Netns::new("old"), Netns::new("new"));
    add(&mut node, "old", &old, &[mapping("", 80, "tcp")]);
    // The runtime could not reach us, and the interface was removed with the pod.
    node.del("old", "");
    add(&mut node, "new", &new, &[mapping("", 80, "tcp")]);
    for _ in 0..3 {
        node.del("old", "");
    }
    let _servers = serve(&new, "new");
    assert_eq!(outside.ask_tcp("192.0.2.1:80").unwrap(), "new");
    assert_eq!(node.records().len(), 2);
}
