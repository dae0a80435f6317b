//! Several podCIDRs of one family on a node.

use serde_json::Value;

use crate::mtu::add;
use crate::pair::{Pair, api_node, plug};
use seaway_testbed::peer::Protocol::{self, Tcp};
use seaway_testbed::{Netns, require_root};

/// The first ranges have room for one pod (IPv4) and two pods (IPv6).
fn ranges(place: usize) -> [String; 4] {
    [
        format!("10.244.{place}.0/30"),
        format!("10.245.{place}.0/24"),
        format!("fd00:244:0:{place}::/126"),
        format!("fd00:245:0:{place}::/64"),
    ]
    .map(|range| range.parse::<ipnetwork::IpNetwork>().unwrap().to_string())
}

/// Attached by the plugin, with the conf that the daemon has written.
struct Pod {
    netns: Netns,
    /// IPv4 first.
    addresses: Vec<String>,
}

fn pod(pair: &Pair, place: usize) -> Pod {
    let netns = Netns::new("pod");
    let result = add(&pair.members[place].node, &netns);
    let ips = result["ips"].as_array().unwrap().iter();
    let address = |ip: &Value| ip["address"].as_str().unwrap().to_owned();
    let addresses = ips.map(address).map(|ip| {
        let (ip, _) = ip.split_once('/').unwrap();
        ip.to_owned()
    });
    let addresses = addresses.collect();
    Pod { netns, addresses }
}

/// `ip:port`, with the brackets that IPv6 needs.
pub(crate) fn at(ip: &str, port: u16) -> String {
    let ip: std::net::IpAddr = ip.parse().unwrap();
    std::net::SocketAddr::from((ip, port)).to_string()
}

/// The address that the server at `to` sees.
#[track_caller]
pub(crate) fn seen(pair: &Pair, from: &Netns, protocol: Protocol, to: &str) -> String {
    // New links have to find out first whether their own addresses are free.
    let answers = || from.ask(protocol, to).is_ok();
    pair.a().daemon.wait(to, answers);
    let answer = from.ask(protocol, to);
    let answer = answer.unwrap_or_else(|e| panic!("{to}: {e}\n{}", pair.logs()));
    answer.client.ip().to_string()
}

/// Pods of the first ranges and of the second ones on each node.
fn pods_of_all_ranges(pair: &Pair) -> Vec<Pod> {
    let mut pods = Vec::new();
    for place in 0..pair.members.len() {
        let [first, between, second] = [0; 3].map(|_| pod(pair, place));
        assert_eq!(
            first.addresses,
            [
                format!("10.244.{place}.2"),
                spelled(&format!("fd00:244:0:{place}::2"))
            ]
        );
        // Where one family's first range is used up, the other's need not be.
        assert_eq!(
            between.addresses,
            [
                format!("10.245.{place}.2"),
                spelled(&format!("fd00:244:0:{place}::3"))
            ]
        );
        assert_eq!(
            second.addresses,
            [
                format!("10.245.{place}.3"),
                spelled(&format!("fd00:245:0:{place}::2"))
            ]
        );
        pods.extend([first, between, second]);
    }
    pods
}

fn spelled(ip: &str) -> String {
    ip.parse::<std::net::IpAddr>().unwrap().to_string()
}

#[test]
fn pods_of_all_ranges_of_a_node_reach_others_and_the_world() {
    if !require_root() {
        return;
    }
    for mode in ["vxlan", "direct"] {
        let nodes = [0, 1].map(|place| {
            let (v4, v6) = (
                format!("172.30.0.{}", 11 + place),
                format!("fd00:30::{}", 11 + place),
            );
            let ranges = ranges(place);
            api_node(
                ["a", "b"][place],
                &[&v4, &v6],
                &ranges.each_ref().map(String::as_str),
            )
        });
        let cluster = "10.244.0.0/16,10.245.0.0/16,fd00:244::/48,fd00:245::/48";
        let flags = ["--cluster-cidr", cluster, "--pod-routes", mode];
        let pair = Pair::with(&nodes, &flags, |_| {}, |_, _, _| {});
        for (place, member) in pair.members.iter().enumerate() {
            let expect: Vec<Value> = ranges(place)
                .iter()
                .map(|range| serde_json::json!({ "subnet": range }))
                .collect();
            assert_eq!(member.conf()["ipam"]["ranges"], Value::from(expect));
            for range in ranges(1 - place) {
                let way = if mode == "vxlan" {
                    "dev seaway.vx"
                } else {
                    "dev eth0"
                };
                member.wait_route(&range, way);
            }
        }
        let world = Netns::new("world");
        plug(
            &pair.fabric,
            &world,
            &["172.30.0.99/24".to_owned(), "fd00:30::99/64".to_owned()],
        );
        let outside = [("172.30.0.99", "172.30.0."), ("fd00:30::99", "fd00:30::")];
        let _servers = outside.map(|(ip, _)| world.serve(Tcp, &at(ip, 80), "world"));
        let pods = pods_of_all_ranges(&pair);
        for (nth, server) in pods.iter().enumerate() {
            for (family, ip) in server.addresses.iter().enumerate() {
                let _server = server.netns.serve(Tcp, &at(ip, 80), "pod");
                for client in &pods {
                    let expect = &client.addresses[family];
                    if expect != ip {
                        assert_eq!(seen(&pair, &client.netns, Tcp, &at(ip, 80)), *expect);
                    }
                }
                let (ip, node) = outside[family];
                let node = format!("{node}{}", 11 + nth / 3);
                assert_eq!(seen(&pair, &server.netns, Tcp, &at(ip, 80)), node);
            }
        }
    }
}
