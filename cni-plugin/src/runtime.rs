//! What the runtime wants for one pod: `runtimeConfig` (CNI conventions,
//! CONVENTIONS.md of the CNI project).
//!
//! containerd sends keys as Go spells them (`HostPort`), CRI-O in camel case;
//! Go's own reader does not tell them apart, so neither do we.

mod bandwidth;
mod dns;
mod recorded;

pub(crate) use recorded::{host_ports as recorded_host_ports, serve_loopback};

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_firewall::{HostPort, Protocol};
use seaway_netlink::{MacAddr, ParseMacError, TokenBucket};
use serde_json::Value;

use crate::config::{Object, config, known_in_any_case, optional, read, unsupported};
use crate::error::Error;
use crate::ipam::{Pools, RangeSpec};
use crate::result::Dns;

/// The capabilities that we serve, with what was asked of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Runtime {
    pub(crate) port_mappings: Vec<PortMapping>,
    /// What the pod receives, and what it sends.
    pub(crate) ingress: Option<TokenBucket>,
    pub(crate) egress: Option<TokenBucket>,
    pub(crate) mac: Option<MacAddr>,
    /// At most one of each family.
    pub(crate) ips: Vec<IpAddr>,
    /// Instead of the network's, in the families that there are.
    pub(crate) ranges: Option<Pools>,
    /// Handed on.
    pub(crate) dns: Dns,
}

/// A port of the host that shall lead to the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortMapping {
    protocol: Protocol,
    host_ip: HostIp,
    host_port: u16,
    container_port: u16,
}

/// At which of the host's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HostIp {
    All,
    /// `0.0.0.0`.
    AllV4,
    /// `::`.
    AllV6,
    One(IpAddr),
}

impl HostIp {
    /// Whether both have all addresses of some family, or the same one.
    fn meets(self, other: Self) -> bool {
        let is_some_family = |ip| matches!(ip, Self::AllV4 | Self::AllV6);
        self == other
            || (self == Self::All && is_some_family(other))
            || (other == Self::All && is_some_family(self))
    }
}

const RUNTIME: &str = "runtimeConfig";
const MAPPING_KEYS: &[&str] = &["hostPort", "containerPort", "protocol", "hostIP"];
/// For others: names of the pod in a resolver, and what is of no network.
const NOT_OURS: &[&str] = &["aliases", "cgrouppath"];

impl Runtime {
    pub(crate) fn parse(object: &Object) -> Result<Self, Error> {
        let all: Object = optional(object, RUNTIME, RUNTIME)?.unwrap_or_default();
        let mut runtime = Self::default();
        for (key, value) in all.iter().filter(|(_, value)| !is_empty(value)) {
            match key.to_ascii_lowercase().as_str() {
                "portmappings" => runtime.port_mappings = port_mappings(&all, key)?,
                "bandwidth" => (runtime.ingress, runtime.egress) = bandwidth::parse(&all, key)?,
                "mac" => runtime.mac = mac(value, &format!("{RUNTIME}.{key}"))?,
                "ips" => runtime.ips = ips(value, &format!("{RUNTIME}.{key}"))?,
                "dns" => runtime.dns = dns::parse(&all, key)?,
                "ipranges" => runtime.ranges = Some(ranges(&all, key)?),
                // With a dot it is information, such as a pod's annotations.
                key if NOT_OURS.contains(&key) || key.contains('.') => {}
                _ => return Err(unsupported(&format!("{RUNTIME}.{key}"), &value.to_string())),
            }
        }
        // The older way, `args.cni`, gives way to this one.
        let args: Object = optional(object, "args", "args")?.unwrap_or_default();
        let cni: Object = optional(&args, "cni", "args.cni")?.unwrap_or_default();
        if let (None, Some(value)) = (runtime.mac, cni.get("mac")) {
            runtime.mac = mac(value, "args.cni.mac")?;
        }
        if let (true, Some(value)) = (runtime.ips.is_empty(), cni.get("ips")) {
            runtime.ips = ips(value, "args.cni.ips")?;
        }
        Ok(runtime)
    }

    /// The mappings to these addresses of the pod.
    ///
    /// # Errors
    /// One that leads to a family that the pod does not have.
    pub(crate) fn host_ports(&self, pod: &[IpAddr]) -> Result<Vec<HostPort>, Error> {
        let mut ports: Vec<HostPort> = Vec::new();
        for mapping in &self.port_mappings {
            let of_mapping: Vec<HostPort> =
                pod.iter().filter_map(|ip| mapping.host_port(*ip)).collect();
            for port in &of_mapping {
                // No address and `0.0.0.0` are the same to IPv4.
                if !ports.contains(port) {
                    ports.push(*port);
                }
            }
            if of_mapping.is_empty() {
                let key = format!("{RUNTIME}.portMappings");
                let why = format!("{mapping:?} is of a family that the pod has not");
                return Err(config(&key, why));
            }
        }
        Ok(ports)
    }
}

impl PortMapping {
    /// Whether the same port of the host would lead to two of the pod.
    fn is_at_odds(&self, other: &Self) -> bool {
        let at = |one: &Self| (one.protocol, one.host_port);
        at(self) == at(other)
            && self.host_ip.meets(other.host_ip)
            && self.container_port != other.container_port
    }

    /// Whether the host's own 127.0.0.0/8 is among its addresses.
    pub(crate) fn serves_loopback(&self) -> bool {
        match self.host_ip {
            HostIp::All | HostIp::AllV4 => true,
            HostIp::AllV6 => false,
            HostIp::One(ip) => ip.is_loopback(),
        }
    }

    fn host_port(&self, pod: IpAddr) -> Option<HostPort> {
        let host_ip = match self.host_ip {
            HostIp::All => None,
            HostIp::AllV4 if pod.is_ipv4() => None,
            HostIp::AllV6 if pod.is_ipv6() => None,
            HostIp::One(ip) if ip.is_ipv4() == pod.is_ipv4() => Some(ip),
            _ => return None,
        };
        Some(HostPort {
            protocol: self.protocol,
            host_ip,
            host_port: self.host_port,
            pod,
            pod_port: self.container_port,
        })
    }
}

fn mac(value: &Value, path: &str) -> Result<Option<MacAddr>, Error> {
    let text: String = read(value, path)?;
    parse_mac(&text).map_err(|why| config(path, why))
}

/// Empty is none.
pub(crate) fn parse_mac(text: &str) -> Result<Option<MacAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let mac: MacAddr = text.parse().map_err(|e: ParseMacError| e.to_string())?;
    if mac.0[0] & 1 == 1 || mac.0 == [0; 6] {
        return Err(format!("{mac} is no address of one interface"));
    }
    Ok(Some(mac))
}

fn ips(value: &Value, path: &str) -> Result<Vec<IpAddr>, Error> {
    let texts: Vec<String> = read(value, path)?;
    parse_ips(texts.iter().map(String::as_str)).map_err(|why| config(path, why))
}

/// Addresses, with or without a prefix length, one of each family.
pub(crate) fn parse_ips<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<IpAddr>, String> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for text in texts {
        let network: IpNetwork = text.parse().map_err(|e| format!("{text:?}: {e}"))?;
        let ip = network.ip();
        if let Some(other) = ips.iter().find(|other| other.is_ipv4() == ip.is_ipv4()) {
            return Err(format!(
                "{ip} and {other} are of one family, of which a pod has one"
            ));
        }
        ips.push(ip);
    }
    Ok(ips)
}

/// A list of lists: the reference plugin gives an address of each inner list,
/// we one of each family.
fn ranges(all: &Object, key: &str) -> Result<Pools, Error> {
    let path = format!("{RUNTIME}.{key}");
    let sets: Vec<Vec<Object>> = optional(all, key, &path)?.unwrap_or_default();
    let mut specs = Vec::new();
    for range in sets.iter().flatten() {
        let range = lower_case(range);
        let ip = |key: &str| -> Result<Option<IpAddr>, Error> {
            let text: Option<String> = optional(&range, key, &path)?;
            let text = text.filter(|text| !text.is_empty());
            let ip = text.map(|text| text.parse().map_err(|e| format!("{text:?}: {e}")));
            ip.transpose().map_err(|why| config(&path, why))
        };
        let subnet: Option<IpNetwork> = optional(&range, "subnet", &path)?;
        let spec = RangeSpec {
            subnet: subnet.ok_or_else(|| config(&path, "a range has no subnet"))?,
            start: ip("rangestart")?,
            end: ip("rangeend")?,
        };
        spec.refuse_special().map_err(|why| config(&path, why))?;
        specs.push(spec);
    }
    Pools::new(&specs).map_err(|why| config(&path, why))
}

/// Equal ones count once; one without a host port asks for nothing.
fn port_mappings(all: &Object, key: &str) -> Result<Vec<PortMapping>, Error> {
    let path = format!("{RUNTIME}.{key}");
    let list: Vec<Object> = optional(all, key, &path)?.unwrap_or_default();
    let mut mappings: BTreeSet<PortMapping> = BTreeSet::new();
    for (place, entry) in list.iter().enumerate() {
        let path = format!("{path}[{place}]");
        let Some(mapping) = port_mapping(entry, &path)? else {
            continue;
        };
        if let Some(other) = mappings.iter().find(|other| other.is_at_odds(&mapping)) {
            let (port, to) = (mapping.host_port, other.container_port);
            let why = format!("{port} leads to the pod's port {to} already");
            return Err(config(&format!("{path}.hostPort"), why));
        }
        mappings.insert(mapping);
    }
    Ok(mappings.into_iter().collect())
}

fn port_mapping(entry: &Object, path: &str) -> Result<Option<PortMapping>, Error> {
    known_in_any_case(entry, &format!("{path}."), MAPPING_KEYS)?;
    let entry = lower_case(entry);
    let port = |key: &str, name: &str| -> Result<u16, Error> {
        Ok(optional(&entry, key, &format!("{path}.{name}"))?.unwrap_or(0))
    };
    let host_port = port("hostport", "hostPort")?;
    if host_port == 0 {
        return Ok(None);
    }
    let container_port = port("containerport", "containerPort")?;
    if container_port == 0 {
        return Err(config(&format!("{path}.containerPort"), "is required"));
    }
    let protocol: Option<String> = optional(&entry, "protocol", &format!("{path}.protocol"))?;
    let protocol = match protocol.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        other => return Err(unsupported(&format!("{path}.protocol"), other)),
    };
    Ok(Some(PortMapping {
        protocol,
        host_ip: host_ip(&entry, &format!("{path}.hostIP"))?,
        host_port,
        container_port,
    }))
}

fn host_ip(entry: &Object, path: &str) -> Result<HostIp, Error> {
    let text: Option<String> = optional(entry, "hostip", path)?;
    let text = text.filter(|text| !text.is_empty());
    let Some(text) = text else {
        return Ok(HostIp::All);
    };
    let ip: IpAddr = text
        .parse()
        .map_err(|error| config(path, format!("{text:?}: {error}")))?;
    match ip.to_canonical() {
        // The kernel cannot send from ::1 to another host, not even by NAT.
        IpAddr::V6(ip) if ip.is_loopback() => Err(unsupported(path, &text)),
        IpAddr::V4(ip) if ip.is_unspecified() => Ok(HostIp::AllV4),
        IpAddr::V6(ip) if ip.is_unspecified() => Ok(HostIp::AllV6),
        ip => Ok(HostIp::One(ip)),
    }
}

fn lower_case(object: &Object) -> Object {
    let lower = |(key, value): (&String, &Value)| (key.to_ascii_lowercase(), value.clone());
    object.iter().map(lower).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests;
