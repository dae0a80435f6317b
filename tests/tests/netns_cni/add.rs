//! What ADD makes: links, addresses, routes, and that packets pass.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::node::{Node, address, assert_reaches, pod_path, success};

#[test]
fn case_15_add_gives_a_pod_its_interface_and_reports_it() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    pod.ip("link set lo down");
    let result = node.add("c1", &pod);

    let host_ifname = result["interfaces"][0]["name"].as_str().unwrap();
    assert_eq!(host_ifname, "swec43057c07aa", "sw and the hash of c1, eth0");
    let host = &node.netns.ip_json(&format!("-d link show {host_ifname}"))[0];
    let eth0 = &pod.ip_json("-d addr show eth0")[0];
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": host_ifname, "mac": host["address"]},
                {"name": "eth0", "mac": eth0["address"], "sandbox": pod_path(&pod)},
            ],
            "ips": [{"interface": 1, "address": "10.244.1.2/32", "gateway": "169.254.1.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
        })
    );
    assert_eq!((&host["mtu"], &eth0["mtu"]), (&json!(1450), &json!(1450)));
    assert_eq!(
        (&host["operstate"], &eth0["operstate"]),
        (&json!("UP"), &json!("UP"))
    );
    assert_eq!(host["ifalias"], "default/web");
    assert_eq!(eth0["addr_info"][0]["local"], "10.244.1.2");
    assert_eq!(eth0["addr_info"][0]["prefixlen"], 32);
    let lo = pod.ip_json("link show lo");
    assert!(lo[0]["flags"].as_array().unwrap().contains(&json!("UP")));

    let routes = pod.ip_json("route");
    assert_eq!(routes[0]["dst"], "default");
    assert_eq!(routes[0]["gateway"], "169.254.1.1");
    assert_eq!(
        (&routes[1]["dst"], &routes[1]["scope"]),
        (&json!("169.254.1.1"), &json!("link"))
    );
    let gateway = &pod.ip_json("neigh")[0];
    assert_eq!(gateway["lladdr"], host["address"]);
    assert_eq!(gateway["state"], json!(["PERMANENT"]));

    let route = node.netns.ip_json("route show proto 83");
    assert_eq!(
        route,
        json!([{"dst": "10.244.1.2", "dev": host_ifname, "scope": "link", "flags": []}])
    );
    let neighbour = &node.netns.ip_json("neigh")[0];
    assert_eq!(neighbour["lladdr"], eth0["address"]);
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}

#[test]
fn case_15_pods_and_node_reach_each_other_without_asking_for_hardware_addresses() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let asked = [&node.netns, &a, &b].map(count_arp);
    let (ip_a, ip_b) = (address(&node.add("a", &a)), address(&node.add("b", &b)));
    for (from, to) in [
        (&node.netns, &ip_a),
        (&a, &ip_b),
        (&b, &ip_a),
        (&a, &"172.30.0.11".to_owned()),
    ] {
        assert_reaches(from, to);
    }
    let _web = b.serve(Tcp, "0.0.0.0:80", "b");
    let _host = node.netns.serve(Tcp, "0.0.0.0:80", "node");
    let answer = a.ask(Tcp, &format!("{ip_b}:80")).unwrap();
    assert_eq!(
        (answer.name.as_str(), answer.client.ip().to_string()),
        ("b", ip_a)
    );
    assert_eq!(node.netns.ask_tcp(&format!("{ip_b}:80")).unwrap(), "b");
    assert_eq!(a.ask_tcp("172.30.0.11:80").unwrap(), "node");
    for netns in [&node.netns, &a, &b] {
        for entry in netns.ip_json("neigh").as_array().unwrap() {
            assert_eq!(entry["state"], json!(["PERMANENT"]), "{entry}");
        }
    }
    assert_eq!(asked.each_ref().map(|count| count()), [0, 0, 0]);
    // On a link that is not ours it is different, and the count is one.
    node.netns.ip("link add other type veth peer name end");
    node.netns.ip("addr add 192.0.2.1/24 dev other");
    node.netns.ip("link set end up");
    node.netns.ip("link set other up");
    node.netns.ask_udp("192.0.2.2:9").unwrap_err();
    assert!(asked[0]() > 0);
}

/// Counts ARP, coming and going, from now on.
fn count_arp(netns: &Netns) -> impl Fn() -> u64 {
    let rules = "\
        add table arp count\n\
        add chain arp count input { type filter hook input priority 0; }\n\
        add rule arp count input counter\n\
        add chain arp count output { type filter hook output priority 0; }\n\
        add rule arp count output counter\n";
    netns.must_run(&["nft", rules]);
    move || {
        let all = netns.must_run(&["nft", "-j", "list", "table", "arp", "count"]);
        let all: Value = serde_json::from_str(&all).unwrap();
        let rules = all["nftables"].as_array().unwrap().iter();
        let counters =
            rules.filter_map(|item| item["rule"]["expr"][0]["counter"]["packets"].as_u64());
        counters.sum()
    }
}

/// The end that comes up first gets its queues late (net/core/link_watch.c).
#[test]
fn the_first_packet_after_add_is_not_lost() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    for n in 0..10 {
        let (id, pod) = (format!("c{n}"), Netns::new("pod"));
        let address = address(&node.add(&id, &pod));
        if n % 2 == 0 {
            assert_reaches(&node.netns, &address);
        } else {
            assert_reaches(&pod, "172.30.0.11");
        }
        node.del(&id, "");
    }
}

#[test]
fn the_hosts_end_is_prepared() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    node.netns.sysctl("ipv4/conf/default/rp_filter", "1");
    node.netns.sysctl("ipv4/ip_forward", "0");
    let result = node.add("c1", &Netns::new("pod"));
    let name = result["interfaces"][0]["name"].as_str().unwrap();
    // The pod's namespace is gone here, and its interface goes with it, so
    // another one is looked at.
    let pod = Netns::new("pod2");
    let result = node.add("c2", &pod);
    assert_ne!(result["interfaces"][0]["name"], name);
    let name = result["interfaces"][0]["name"].as_str().unwrap();
    let read = |key: String| {
        let path = Path::new("/proc/sys/net").join(key);
        node.netns
            .enter(|| std::fs::read_to_string(&path))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(read("ipv4/ip_forward".into()), "1");
    assert_eq!(read(format!("ipv4/conf/{name}/forwarding")), "1");
    assert_eq!(read(format!("ipv4/conf/{name}/rp_filter")), "2");
    assert_eq!(read(format!("ipv4/conf/{name}/send_redirects")), "0");
    assert_eq!(read(format!("ipv6/conf/{name}/accept_ra")), "0");
}

#[test]
fn case_20_a_second_add_is_refused_and_harms_nothing() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let result = node.add("c1", &pod);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("container c1 has an attachment eth0 already")
    );
    assert_eq!(node.records().len(), 1);
    assert_reaches(&node.netns, &address(&result));
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn sixteen_adds_at_once_get_sixteen_addresses() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pods: Vec<Netns> = (0..16).map(|_| Netns::new("pod")).collect();
    let children: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(n, pod)| {
            let mut command = node.command("ADD", &format!("c{n}"), pod_path(pod));
            let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = pipes.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(node.conf.to_string().as_bytes()).unwrap();
            child
        })
        .collect();
    let addresses: BTreeSet<String> = children
        .into_iter()
        .map(|child| address(&success(&child.wait_with_output().unwrap())))
        .collect();
    assert_eq!(addresses.len(), 16);
    assert_eq!(node.records().len(), 16);
    for address in &addresses {
        assert_reaches(&node.netns, address);
    }
    for n in 0..16 {
        node.del(&format!("c{n}"), "");
    }
    node.assert_empty();
}
