//! Pods of the plugin while the daemon's world changes around them. The oracles are packets.

use std::fs;
use std::time::Instant;

use seaway_testbed::fake_api::{NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol::{self, Tcp, Udp};
use seaway_testbed::{Netns, bin, require_root};
use serde_json::{Value, json};

use crate::mtu::add;
use crate::node::CONF;
use crate::pair::{Member, Pair, api_node};
use crate::pools::{at, seen};
use crate::upkeep::{Kept, mapping};

/// As when a Node object is deleted and made anew: pods do not move.
#[test]
fn case_54_pods_of_the_former_range_live_on() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let (web, new) = (Netns::new("web"), Netns::new("new"));
    let _server = web.serve(Tcp, "0.0.0.0:80", "web");
    let old = kept.add("web", &web, Some(8080));
    assert!(old.starts_with("10.244.0."), "{old}");
    let anew = crate::node("a", "172.30.0.11", "10.244.7.0/24");
    kept.api.apply(NODES, anew);
    let conf = || fs::read_to_string(kept.node.path(CONF)).unwrap_or_default();
    kept.daemon
        .wait("the new range", || conf().contains("10.244.7.0/24"));
    let address = kept.add("new", &new, None);
    assert!(address.starts_with("10.244.7."), "{address}");
    kept.both_answer(&web, Instant::now());
    let target = format!("{old}:80");
    assert_eq!(new.ask(Tcp, &target).unwrap().name, "web");
    assert!(kept.node.ask(&target).contains("web"));
    let routes = || kept.node.netns.must_run(&["ip", "route"]);
    assert!(routes().contains(&format!("{old} ")), "{}", routes());
    kept.del("web");
    assert!(!routes().contains(&format!("{old} ")), "{}", routes());
    assert!(kept.outside.ask_tcp("192.0.2.1:8080").is_err());
}

/// A Service whose ports have the number of the hostPorts.
fn serve_behind(kept: &Kept, name: &str, cluster_ip: &str, pod: &str) {
    let family = if pod.contains(':') { "IPv6" } else { "IPv4" };
    let port = |protocol: &str| {
        let name = protocol.to_lowercase();
        json!({ "name": name, "port": 8080, "protocol": protocol })
    };
    let ports = json!(["TCP", "UDP"].map(port));
    let mut service = crate::service(name, cluster_ip);
    service["spec"]["ipFamilies"] = json!([family]);
    service["spec"]["ports"] = ports.clone();
    let mut slice = crate::slice(name, pod);
    slice["addressType"] = json!(family);
    slice["ports"] = ports;
    kept.api.apply(SERVICES, service);
    kept.api.apply(SLICES, slice);
}

/// What answers the node itself, asked from its cgroup, where eBPF meets it.
fn ask_from_node(kept: &Kept, protocol: Protocol, address: &str) -> String {
    let word = if protocol == Tcp { "tcp" } else { "udp" };
    let mut asks = kept.node.command_inside(bin("seaway-peer"));
    let output = asks.args(["ask", word, address]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// The hostPort at all of `hosts`, from outside, from the node and from another pod.
#[track_caller]
fn host_port_leads_to_web(kept: &Kept, other: &Netns, hosts: &[&str]) {
    for (host, protocol) in hosts.iter().flat_map(|host| [(host, Tcp), (host, Udp)]) {
        let target = format!("{host}:8080");
        let what = format!("{protocol:?} {target}");
        let said = ask_from_node(kept, protocol, &target);
        assert!(said.contains("web"), "{what}: {said}");
        if *host == "127.0.0.1" {
            continue;
        }
        for from in [&kept.outside, other] {
            let answer = from.ask(protocol, &target);
            let answer = answer.unwrap_or_else(|e| panic!("{} {what}: {e}", from.name()));
            assert_eq!(answer.name, "web", "{} {what}", from.name());
        }
    }
}

/// hostPorts are the plugin's, whoever translates Services.
fn host_ports_work_beside(kept: &Kept, hosts: &[&str], cluster_ips: &[&str]) {
    let (web, other) = (Netns::new("web"), Netns::new("other"));
    let _servers = [Tcp, Udp].map(|protocol| {
        [
            web.serve(protocol, "[::]:80", "web"),
            other.serve(protocol, "[::]:8080", "other"),
        ]
    });
    let mappings = ["tcp", "udp"].map(|protocol| mapping(8080, protocol));
    kept.add_with("web", &web, &json!(mappings));
    let behind = kept.add_with("other", &other, &Value::Null);
    assert_eq!(behind.len(), cluster_ips.len());
    for (n, (cluster_ip, pod)) in cluster_ips.iter().zip(&behind).enumerate() {
        serve_behind(kept, &format!("other{n}"), cluster_ip, pod);
    }
    let asked = cluster_ips.iter().map(|ip| at(ip, 8080));
    let asked: Vec<_> = asked
        .flat_map(|at| [(Tcp, at.clone()), (Udp, at)])
        .collect();
    let served = || {
        asked
            .iter()
            .all(|(protocol, at)| ask_from_node(kept, *protocol, at).contains("other"))
    };
    kept.daemon.wait("the Services", served);
    kept.both_answer(&web, Instant::now());
    host_port_leads_to_web(kept, &other, hosts);
    kept.del("web");
    for host in hosts.iter().filter(|host| **host != "127.0.0.1") {
        for protocol in [Tcp, Udp] {
            let answer = kept.outside.ask(protocol, &format!("{host}:8080"));
            assert!(answer.is_err(), "{protocol:?} {host}: {answer:?}");
        }
    }
    assert!(served(), "{}", kept.daemon.log());
}

#[test]
fn host_ports_work_beside_either_service_proxy() {
    if !require_root() {
        return;
    }
    let four = ["127.0.0.1", "192.0.2.1"];
    let kept = Kept::with_plugin("ebpf", &bin("seaway-cni"), &[]);
    host_ports_work_beside(&kept, &four, &["10.96.0.7"]);
    // That one translates IPv4 alone.
    let kept = Kept::dual("iptables");
    let both = [&four[..], &["[fd00:192::1]"]].concat();
    host_ports_work_beside(&kept, &both, &["10.96.0.7", "fd00:96::7"]);
}

/// A pod of the plugin, and its addresses, IPv4 first.
fn attach(member: &Member) -> (Netns, Vec<String>) {
    let pod = Netns::new("pod");
    let result = add(&member.node, &pod);
    let ips = result["ips"].as_array().unwrap().iter();
    let addresses = ips.map(|ip| ip["address"].as_str().unwrap());
    let addresses = addresses.map(|address| address.split('/').next().unwrap().to_owned());
    let addresses = addresses.collect();
    (pod, addresses)
}

/// FORWARD of both nodes and families.
fn drop_what_is_forwarded(pair: &Pair) {
    for member in &pair.members {
        for iptables in ["iptables-nft", "ip6tables-nft"] {
            let words = [iptables, "-P", "FORWARD", "DROP"];
            member.node.netns.must_run(&words);
        }
    }
}

/// What the plugin does on each node is enough for the way between them.
#[test]
fn case_63_the_plugin_lets_pods_of_two_nodes_through_a_forward_that_drops() {
    if !require_root() {
        return;
    }
    for mode in ["direct", "vxlan"] {
        // The daemon is not to have it repaired before the plugin is called.
        let flags = ["--pod-routes", mode, "--cni-bin", "/nonexistent/seaway-cni"];
        let pair = Pair::start_dual(&flags);
        let beside = ["10.244.1.5", "fd00:244:0:1::5"].map(|ip| at(ip, 80));
        for to in &beside {
            seen(&pair, &pair.a().pod, Tcp, to);
        }
        drop_what_is_forwarded(&pair);
        for to in &beside {
            let answer = pair.a().pod.ask(Tcp, to);
            assert!(answer.is_err(), "{mode}: FORWARD does not drop: {answer:?}");
        }
        let pods = [pair.a(), pair.b()].map(attach);
        for ((from, own), (to, ips)) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
            assert_eq!(ips.len(), 2);
            for (own, ip) in own.iter().zip(ips) {
                let address = at(ip, 80);
                let _server = to.serve(Tcp, &address, "pod");
                assert_eq!(seen(&pair, from, Tcp, &address), *own, "{mode}");
            }
        }
    }
}

/// Node b has room for one pod of IPv4 and two of IPv6.
fn narrow(mode: &str) -> Pair {
    let (a, b) = (
        ["172.30.0.11", "fd00:30::11"],
        ["172.30.0.12", "fd00:30::12"],
    );
    let nodes = [
        api_node("a", &a, &["10.244.0.0/24", "fd00:244::/64"]),
        api_node("b", &b, &["10.244.1.0/30", "fd00:244:0:1::/126"]),
    ];
    let cluster = "10.244.0.0/16,fd00:244::/48";
    let flags = ["--cluster-cidr", cluster, "--pod-routes", mode];
    Pair::with(&nodes, &flags, |_| {}, |_, _, _| {})
}

/// Each pod of b gets the IPv4 address of the one before, and the third one the first one's
/// of IPv6.
#[test]
fn case_66_an_address_that_the_plugin_gives_again_works_at_once_from_another_node() {
    if !require_root() {
        return;
    }
    for mode in ["direct", "vxlan"] {
        let pair = narrow(mode);
        let (client, _) = attach(pair.a());
        let mut given = Vec::new();
        for name in ["first", "second", "third"] {
            let (pod, ips) = attach(pair.b());
            let addresses: Vec<_> = ips.iter().map(|ip| at(ip, 80)).collect();
            let serve = |address: &String| pod.serve(Tcp, address, name);
            let _servers: Vec<_> = addresses.iter().map(serve).collect();
            for address in &addresses {
                if name == "first" {
                    // The nodes have to find each other once.
                    seen(&pair, &client, Tcp, address);
                }
                let answer = client.ask_tcp(address);
                let answer = answer.unwrap_or_else(|e| panic!("{mode} {name} {address}: {e}"));
                assert_eq!(answer, name, "{mode} {address}");
            }
            pair.b().del(&pod);
            given.push(ips);
        }
        assert_eq!(given[0][0], given[1][0], "{given:?}");
        assert_eq!(given[0], given[2], "{given:?}");
    }
}
