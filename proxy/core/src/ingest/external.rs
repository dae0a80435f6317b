//! What a Service says about traffic besides its cluster IP.

use std::net::IpAddr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1 as core;

use super::{Skips, parse};
use crate::desired::{Family, TrafficPolicy};
use crate::skipped::SkipReason;

/// `v1.DefaultClientIPServiceAffinitySeconds`
const AFFINITY_DEFAULT_SECONDS: i32 = 10_800;
/// `v1.MaxClientIPServiceAffinitySeconds`, one day.
const AFFINITY_MAX_SECONDS: i32 = 86_400;

/// Addresses whose load balancer leaves the delivery to the nodes.
pub(super) fn load_balancer_ips(
    object: &core::Service,
    cluster_ips: &[IpAddr],
    skips: &mut Skips,
) -> Vec<IpAddr> {
    let status = object
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref());
    let ingress = status
        .and_then(|s| s.ingress.as_deref())
        .unwrap_or_default();
    let mut found = Vec::new();
    for (i, entry) in ingress.iter().enumerate() {
        let at = |field: &str| format!("status.loadBalancer.ingress[{i}].{field}");
        let text = entry.ip.as_deref().unwrap_or_default();
        if text.is_empty() {
            skips.push(at("ip"), SkipReason::NoAddress);
            continue;
        }
        match entry.ip_mode.as_deref() {
            None | Some("" | "VIP") => {}
            Some("Proxy") => {
                skips.push(at("ipMode"), SkipReason::ProxiedByLoadBalancer);
                continue;
            }
            Some(other) => {
                skips.push(at("ipMode"), unknown(other, "VIP and Proxy"));
                continue;
            }
        }
        found.extend(skips.ok(at("ip"), external_address(text, cluster_ips)));
    }
    found
}

/// `spec.externalIPs`
pub(super) fn external_ips(
    spec: &core::ServiceSpec,
    cluster_ips: &[IpAddr],
    skips: &mut Skips,
) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for (i, text) in spec.external_ips.iter().flatten().enumerate() {
        let field = format!("spec.externalIPs[{i}]");
        found.extend(skips.ok(field, external_address(text, cluster_ips)));
    }
    found
}

fn external_address(text: &str, cluster_ips: &[IpAddr]) -> Result<IpAddr, SkipReason> {
    let addr = parse::address(text).and_then(parse::routable)?;
    let family = Family::of(addr);
    if cluster_ips.iter().any(|ip| Family::of(*ip) == family) {
        return Ok(addr);
    }
    Err(SkipReason::NoClusterIpOfFamily {
        value: text.to_owned(),
        family,
    })
}

/// `spec.internalTrafficPolicy`
pub(super) fn internal_policy(spec: &core::ServiceSpec, skips: &mut Skips) -> TrafficPolicy {
    let text = spec.internal_traffic_policy.as_deref();
    traffic_policy("spec.internalTrafficPolicy", text, skips)
}

/// `spec.externalTrafficPolicy`. Local means something where there is external
/// traffic by the type, or by externalIPs.
pub(super) fn policy(spec: &core::ServiceSpec, skips: &mut Skips) -> TrafficPolicy {
    let text = spec.external_traffic_policy.as_deref();
    let policy = traffic_policy("spec.externalTrafficPolicy", text, skips);
    let external_ips = spec.external_ips.as_deref().unwrap_or_default();
    match spec.type_.as_deref() {
        Some("LoadBalancer" | "NodePort") => policy,
        _ if !external_ips.is_empty() => policy,
        _ => TrafficPolicy::Cluster,
    }
}

fn traffic_policy(field: &str, text: Option<&str>, skips: &mut Skips) -> TrafficPolicy {
    match text {
        None | Some("" | "Cluster") => TrafficPolicy::Cluster,
        Some("Local") => TrafficPolicy::Local,
        Some(other) => {
            skips.push(field, unknown(other, "Cluster and Local"));
            TrafficPolicy::Cluster
        }
    }
}

/// `spec.loadBalancerSourceRanges`; a range that holds everybody of either
/// family lifts the restriction in both. A list in which nothing is usable
/// admits nobody: somebody meant to close the door.
pub(super) fn source_ranges(spec: &core::ServiceSpec, skips: &mut Skips) -> Option<Vec<IpNetwork>> {
    let texts = spec
        .load_balancer_source_ranges
        .as_deref()
        .unwrap_or_default();
    if texts.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let field = format!("spec.loadBalancerSourceRanges[{i}]");
        found.extend(skips.ok(field, parse::network(text)));
    }
    if found.iter().any(|range| range.prefix() == 0) {
        return None;
    }
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// `spec.sessionAffinity` with its timeout.
pub(super) fn affinity(spec: &core::ServiceSpec, skips: &mut Skips) -> Option<Duration> {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            skips.push("spec.sessionAffinity", unknown(other, "None and ClientIP"));
            return None;
        }
    }
    let config = spec.session_affinity_config.as_ref();
    let config = config.and_then(|c| c.client_ip.as_ref());
    let seconds = config
        .and_then(|c| c.timeout_seconds)
        .unwrap_or(AFFINITY_DEFAULT_SECONDS);
    let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let checked = if (1..=AFFINITY_MAX_SECONDS).contains(&seconds) {
        Ok(seconds)
    } else {
        let expected = "1-86400 seconds, the default of 10800 is used";
        let value = seconds;
        Err(SkipReason::OutOfRange { value, expected })
    };
    let seconds = skips.ok(field, checked).unwrap_or(AFFINITY_DEFAULT_SECONDS);
    Some(Duration::from_secs(u64::from(seconds.unsigned_abs())))
}

/// `spec.healthCheckNodePort`: only load balancers with policy Local ask.
pub(super) fn health_check(
    spec: &core::ServiceSpec,
    external: TrafficPolicy,
    skips: &mut Skips,
) -> Option<u16> {
    if spec.type_.as_deref() != Some("LoadBalancer") || external != TrafficPolicy::Local {
        return None;
    }
    let number = spec.health_check_node_port.ok_or(SkipReason::Missing);
    skips.ok("spec.healthCheckNodePort", number.and_then(parse::port))
}

fn unknown(value: &str, expected: &'static str) -> SkipReason {
    SkipReason::UnknownValue {
        value: value.to_owned(),
        expected,
    }
}
