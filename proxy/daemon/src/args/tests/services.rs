//! Flags that say how Services are served, and how often.

use seaway_proxy_core::node::NodePorts;

use super::*;
use crate::config::DetectLocal;

#[test]
fn pods_are_told_apart_as_asked_or_by_what_is_known_of_them() {
    let detect = |flags: &str| run(flags).unwrap().map(|config| config.services.detect);
    let off = "--pod-network off --cluster-cidr 10.244.0.0/16,fd00:10::/48";
    let cidrs = ["10.244.0.0/16", "fd00:10::/48"].map(|cidr| cidr.parse().unwrap());
    let cluster = || DetectLocal::ClusterCidrs(cidrs.to_vec());
    let on = "--cluster-cidr 10.244.0.0/16,fd00:10::/48";
    let prefix = |name: &str| DetectLocal::InterfacePrefix(name.to_owned());
    assert_eq!(detect(off), Ok(cluster()));
    assert_eq!(detect(on), Ok(prefix("sw")));
    let none = DetectLocal::ClusterCidrs(Vec::new());
    assert_eq!(detect("--pod-network off"), Ok(none));
    let mode = |more: &str| detect(&format!("{on} --detect-local-mode {more}"));
    assert_eq!(mode("ClusterCIDR"), Ok(cluster()));
    assert_eq!(mode("NodeCIDR"), Ok(DetectLocal::NodeCidrs));
    assert_eq!(
        mode("BridgeInterface --pod-bridge-interface cni0"),
        Ok(DetectLocal::Interface("cni0".to_owned()))
    );
    assert_eq!(
        mode("InterfaceNamePrefix --pod-interface-name-prefix cali"),
        Ok(prefix("cali"))
    );
    for (name, flag) in [
        ("BridgeInterface", "--pod-bridge-interface"),
        ("InterfaceNamePrefix", "--pod-interface-name-prefix"),
    ] {
        let text = mode(name).unwrap_err().to_string();
        assert!(text.contains(name) && text.contains(flag), "{text}");
    }
}

#[test]
fn switches_and_ranges_are_kube_proxys() {
    let services = |flags: &str| {
        let config = run(&format!("--pod-network off {flags}")).unwrap();
        config.map(|config| config.services)
    };
    let default = services("").unwrap();
    assert!(default.localhost_node_ports && !default.masquerade_all && default.external_ips);
    assert_eq!(default.node_ports, NodePorts::All);
    let other = services("--iptables-localhost-nodeports=false --masquerade-all").unwrap();
    assert!(!other.localhost_node_ports && other.masquerade_all);
    let closed = services("--allow-service-external-ips=false").unwrap();
    assert!(!closed.external_ips);
    let node_ports = |value: &str| {
        let services = services(&format!("--nodeport-addresses {value}"));
        services.map(|services| services.node_ports)
    };
    assert_eq!(node_ports("primary"), Ok(NodePorts::Primary));
    assert_eq!(
        node_ports("primary,10.0.0.0/8"),
        Err(BadConfig::PrimaryAndMore)
    );
    let ranges = ["10.0.0.0/8", "fd00::/8"].map(|cidr| cidr.parse().unwrap());
    assert_eq!(
        node_ports("10.1.2.3/8,fd00::/8"),
        Ok(NodePorts::Networks(ranges.to_vec()))
    );
}

#[test]
fn pauses_that_cannot_be_are_refused() {
    for flags in [
        "--iptables-sync-period 0s",
        "--iptables-sync-period 1s --iptables-min-sync-period 2s",
    ] {
        let flags = format!("--pod-network off {flags}");
        let error = run(&flags).unwrap().unwrap_err();
        assert!(matches!(error, BadConfig::Periods(_)), "{error}");
    }
    for flag in [
        "--iptables-sync-period ever",
        "--conntrack-udp-timeout -1s",
        "--iptables-masquerade-bit 32",
    ] {
        assert!(run(flag).is_err(), "{flag}");
    }
}
