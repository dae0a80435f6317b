//! What is let in, let through, and kept out, besides the choice of endpoints.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use seaway_proxy_core::ObjectKey;
use seaway_proxy_core::desired::{Frontend, FrontendKind, HealthCheck, LocalSources};
use seaway_testbed::peer::{PATIENCE, Protocol};

use seaway_proxy_iptables::Config;

use crate::node::{Node, OUTSIDE, VIP, Who, config, each_flavour, error_of, web};

const NODE_PORT: &str = "192.168.60.1:30001";

/// The Service with a NodePort, which masquerades everybody.
fn exposed() -> seaway_proxy_core::desired::DesiredState {
    let mut desired = web(2);
    for port in desired.v4.services.values_mut() {
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..port.frontends[0]
        });
    }
    desired.v4.node_ports.localhost = true;
    desired
}

/// Case 258.
#[test]
fn under_a_forward_policy_that_drops() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.restore(flavour, "*filter\n:FORWARD DROP [0:0]\nCOMMIT");
        n.sync(&exposed());
        n.ask(Who::Outside, Protocol::Tcp, NODE_PORT).unwrap();
        n.ask(Who::Outside, Protocol::Udp, NODE_PORT).unwrap();
        // What is not masqueraded is let through by whoever set the policy, or not.
        let passed = error_of(n.client.ask(Protocol::Tcp, VIP));
        assert_eq!(passed, ErrorKind::TimedOut);
        let direct = error_of(n.outside.ask(Protocol::Tcp, "10.244.0.2:8080"));
        assert_eq!(direct, ErrorKind::TimedOut, "no Service is meant");
    });
}

/// Case 229.
#[test]
fn health_checks_pass_an_input_policy_that_drops() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.restore(flavour, "*filter\n:INPUT DROP [0:0]\nCOMMIT");
        let _server = n.host.serve(Protocol::Tcp, "192.168.60.1:32000", "health");
        let _other = n.host.serve(Protocol::Tcp, "192.168.60.1:32001", "other");
        let mut desired = exposed();
        let check = HealthCheck {
            port: 32000,
            endpoints: 1,
        };
        let web = ObjectKey::new("default", "web");
        desired.v4.health_checks.insert(web, check);
        n.sync(&desired);
        assert_eq!(n.outside.ask_tcp("192.168.60.1:32000").unwrap(), "health");
        let other = error_of(n.outside.ask(Protocol::Tcp, "192.168.60.1:32001"));
        assert_eq!(other, ErrorKind::TimedOut);
        desired.v4.health_checks.clear();
        n.sync(&desired);
        let closed = error_of(n.outside.ask(Protocol::Tcp, "192.168.60.1:32000"));
        assert_eq!(closed, ErrorKind::TimedOut);
    });
}

/// Case 67: also what NodePorts on 127.0.0.1 make possible is not for strangers.
#[test]
fn nobody_outside_reaches_a_loopback_address() {
    each_flavour(|flavour| {
        let run_dir = tempfile::tempdir().unwrap();
        let mut n = Node::new(Config {
            run_dir: run_dir.path().to_owned(),
            ..config(flavour)
        });
        n.sync(&exposed());
        let _server = n.host.serve(Protocol::Tcp, "127.0.0.1:81", "host");
        n.host.ask(Protocol::Tcp, "127.0.0.1:30001").unwrap();
        // The stranger's own kernel must let the packets go out.
        n.outside.sysctl("ipv4/conf/all/route_localnet", "1");
        n.outside.ip("addr del 127.0.0.1/8 dev lo");
        n.outside
            .ip("route add 127.0.0.0/8 via 192.168.60.1 src 192.168.60.2");
        for address in ["127.0.0.1:81", "127.0.0.1:30001"] {
            let kind = error_of(n.ask(Who::Outside, Protocol::Tcp, address));
            assert_eq!(kind, ErrorKind::TimedOut, "{address}");
        }
        let dropped = n.host.must_run(&[
            "sh".to_owned(),
            "-c".to_owned(),
            format!("iptables-{flavour}-save -c | grep -- '-A SEAWAY-LOCALHOST'"),
        ]);
        assert!(
            !dropped.starts_with("[0:"),
            "the packets did arrive: {dropped}"
        );
    });
}

/// Case 214: a packet of a pod that conntrack cannot place never meets the client.
#[test]
fn what_conntrack_cannot_place_is_dropped_if_a_pod_sends_it() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = exposed();
        let pods = vec!["10.244.0.0/16".parse().unwrap()];
        desired.v4.local_sources = LocalSources::Networks(pods);
        n.sync(&desired);
        // An acknowledgement out of nowhere counts as INVALID without this leniency.
        n.host.sysctl("netfilter/nf_conntrack_tcp_loose", "0");
        let invalid = |n: &Node| {
            let words = format!("iptables-{flavour}-save -c | grep -- '--ctstate INVALID'");
            let lines = n.host.must_run(&["sh", "-c", &words]);
            let line = lines.lines().find(|line| line.contains("FORWARD")).unwrap();
            let packets = line.trim_start_matches('[').split(':').next().unwrap();
            packets.parse::<u64>().unwrap()
        };
        let held = n.client.enter(|| {
            let address = "192.168.60.2:7".parse().unwrap();
            seaway_testbed::peer::Held::open(address, PATIENCE)
        });
        assert!(held.is_err(), "nobody listens there");
        let before = invalid(&n);
        let server = n.outside.serve(Protocol::Tcp, "192.168.60.2:7", "outside");
        let mut held = n.client.enter(|| {
            let address = "192.168.60.2:7".parse().unwrap();
            seaway_testbed::peer::Held::open(address, PATIENCE).unwrap()
        });
        // The node forgets the connection; the pod goes on in it.
        n.host.must_run(&["conntrack", "-F"]);
        held.check().unwrap_err();
        assert!(invalid(&n) > before, "the pod's packet was dropped");
        drop(server);
    });
}

/// Cases 74 and 75.
#[test]
fn an_address_that_comes_later_serves_node_ports_at_once() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = exposed();
        let list = vec!["192.168.60.0/24".parse().unwrap()];
        for networks in [None, Some(list)] {
            desired.v4.node_ports.networks = networks.clone();
            n.sync(&desired);
            for (later, listed) in [("192.168.60.77", true), ("192.168.61.77", false)] {
                n.host.ip(&format!("addr add {later}/32 dev uplink"));
                n.outside
                    .ip(&format!("route replace {later} via 192.168.60.1"));
                let address = format!("{later}:30001");
                let answer = n.ask(Who::Outside, Protocol::Tcp, &address);
                assert_eq!(
                    answer.is_ok(),
                    networks.is_none() || listed,
                    "{later}: {answer:?}"
                );
                n.host.ip(&format!("addr del {later}/32 dev uplink"));
            }
        }
    });
}

/// Case 259.
#[test]
fn another_bit_may_mean_masquerade() {
    each_flavour(|flavour| {
        let mut n = Node::new(Config {
            masquerade_mark: 0x20,
            ..config(flavour)
        });
        n.sync(&exposed());
        let seen = n.ask(Who::Outside, Protocol::Tcp, NODE_PORT).unwrap();
        assert_ne!(seen.client.ip().to_string(), OUTSIDE);
        let dump = n.dump(flavour);
        assert!(dump.contains("--set-xmark 0x20/0x20") && dump.contains("--set-xmark 0x20/0x0"));
        assert!(!dump.contains("0x4000"), "{dump}");
    });
}
