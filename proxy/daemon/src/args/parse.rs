//! Words into values, for flags and for kube-proxy's file alike.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use k8s_openapi::jiff::SignedDuration;

pub(crate) use super::services::{interface, node_port_address};

/// kube-proxy's ports, for addresses without one.
pub(crate) const HEALTHZ_PORT: u16 = 10_256;
pub(crate) const METRICS_PORT: u16 = 10_249;
/// What probes of the pod network are marked with: these bits mean something already.
const PROBES: u32 = 0x53;

/// As Go writes it, such as 1h30m; not negative.
pub(crate) fn duration(value: &str) -> Result<Duration, String> {
    // Go knows zero without a unit.
    if value == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed = value.parse::<SignedDuration>().ok();
    // Spaces, signs and words are jiff's own.
    let go = |c: char| c.is_ascii_digit() || ".hmsnuµ".contains(c);
    let go = value.chars().all(go);
    let parsed = parsed
        .filter(|_| go)
        .and_then(|d| Duration::try_from(d).ok());
    parsed.ok_or_else(|| "expected a time that is not negative, such as 1h30m or 10s".to_owned())
}

/// An address to listen at, with `port` if it has none.
pub(crate) fn listen(value: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = value.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let parsed: Option<SocketAddr> = value.parse().ok();
    parsed
        .filter(|address| address.port() != 0)
        .ok_or_else(|| format!("expected ADDRESS:PORT, such as 127.0.0.1:{port}"))
}

/// One of the 32, and none that has a meaning.
pub(crate) fn masquerade_bit(value: &str) -> Result<u8, String> {
    let bit: Option<u8> = value.parse().ok().filter(|bit| *bit < 32);
    let bit = bit.ok_or("expected a number from 0 to 31")?;
    if PROBES & (1 << bit) != 0 {
        return Err("probes of the pod network carry this bit".to_owned());
    }
    Ok(bit)
}

/// What the kernel takes as `oom_score_adj`.
pub(crate) const OOM_SCORE_ADJ: std::ops::RangeInclusive<i16> = -1000..=1000;

/// A value of `oom_score_adj`.
pub(crate) fn oom_score_adj(value: &str) -> Result<i16, String> {
    let parsed = value.parse().ok();
    parsed
        .filter(|value| OOM_SCORE_ADJ.contains(value))
        .ok_or_else(|| "expected -1000 to 1000".to_owned())
}

pub(crate) fn node_name(value: &str) -> Result<String, String> {
    let name = as_node_name(value);
    if is_dns_subdomain(&name) {
        Ok(name)
    } else {
        Err("no Node has such a name; expected a DNS subdomain, such as node-1".to_owned())
    }
}

/// kube-proxy and kubelet both trim and lower such names, so Nodes are named like that.
pub(super) fn as_node_name(value: &str) -> String {
    value.trim().to_lowercase()
}

/// RFC 1123 as Kubernetes reads it: `apimachinery/pkg/util/validation`.
pub(super) fn is_dns_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(known)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Paths end up in files that others read from elsewhere.
pub(super) fn absolute(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("not an absolute path".to_owned())
    }
}

pub(crate) fn cluster_cidr(value: &str) -> Result<IpNetwork, String> {
    let cidr = network(value)?;
    if cidr.prefix() == 0 {
        return Err("the whole address family cannot be pod addresses".to_owned());
    }
    Ok(cidr)
}

/// Host bits do not count.
pub(super) fn network(value: &str) -> Result<IpNetwork, String> {
    let cidr: IpNetwork = value
        .parse()
        .map_err(|e| format!("{e}; expected a range, such as 10.244.0.0/16"))?;
    IpNetwork::new(cidr.network(), cidr.prefix()).map_err(|e| e.to_string())
}
