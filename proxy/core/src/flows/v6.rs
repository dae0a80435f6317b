//! The same small world in IPv6.
//!
//! Each number of an IPv4 address becomes a group: 10.180.0.1 is `fd00::a:b4:0:1`.
//! So rows are written once, and networks keep their members.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::desired::Family;
use crate::node::{Detect, Node, NodePorts};

/// An address of the table in another family; 127.0.0.1 is `::1`.
pub fn in_family(addr: IpAddr, family: Family) -> IpAddr {
    match (addr, family) {
        (IpAddr::V4(addr), Family::V6) => v6(addr).into(),
        _ => addr,
    }
}

fn v6(addr: Ipv4Addr) -> Ipv6Addr {
    if addr.is_loopback() {
        return Ipv6Addr::LOCALHOST;
    }
    let [a, b, c, d] = addr.octets().map(u16::from);
    Ipv6Addr::new(0xfd00, 0, 0, 0, a, b, c, d)
}

/// A network with the same members as far as the table goes.
pub(super) fn network_in_family(network: IpNetwork, family: Family) -> IpNetwork {
    let (IpNetwork::V4(v4), Family::V6) = (network, family) else {
        return network;
    };
    let (whole, rest) = (v4.prefix() / 8, v4.prefix() % 8);
    let prefix = match (whole, rest) {
        (0, 0) => return IpNetwork::new(Ipv6Addr::UNSPECIFIED.into(), 0).expect("0 is a prefix"),
        (whole, 0) => 64 + 16 * whole,
        // The upper half of a group is always 0.
        (whole, rest) => 64 + 16 * whole + 8 + rest,
    };
    IpNetwork::new(v6(v4.network()).into(), prefix).expect("at most 128")
}

pub(super) fn node_in_family(node: &mut Node, family: Family) {
    let convert = |networks: &mut Vec<IpNetwork>| {
        let networks = networks.iter_mut();
        networks.for_each(|network| *network = network_in_family(*network, family));
    };
    let addresses = node.addresses.iter_mut();
    addresses.for_each(|addr| *addr = in_family(*addr, family));
    if let Detect::Networks(networks) = &mut node.detect {
        convert(networks);
    }
    if let NodePorts::Networks(networks) = &mut node.node_ports {
        convert(networks);
    }
}

/// Every address and network in an object.
pub(super) fn object_in_family(value: &mut Value, family: Family) {
    match value {
        Value::String(text) => {
            if let Some(converted) = text_in_family(text, family) {
                *text = converted;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|v| object_in_family(v, family)),
        Value::Object(map) => map.values_mut().for_each(|v| object_in_family(v, family)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn text_in_family(text: &str, family: Family) -> Option<String> {
    // Leading zeros are an affair of IPv4.
    let number = |digits: &str| digits.parse::<u8>().ok();
    let address = |text: &str| {
        let octets: Vec<u8> = text.split('.').map(number).collect::<Option<_>>()?;
        let octets = <[u8; 4]>::try_from(octets).ok()?;
        Some(IpAddr::from(octets))
    };
    match text.trim().split_once('/') {
        None => Some(in_family(address(text)?, family).to_string()),
        Some((addr, prefix)) => {
            let network = IpNetwork::new(address(addr)?, number(prefix)?).ok()?;
            Some(network_in_family(network, family).to_string())
        }
    }
}
