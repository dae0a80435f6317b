//! Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;

use super::{Ingested, LABEL_SERVICE_PROXY_NAME, Port, ServiceSpec, Skips, parse};
use crate::skipped::{Kind, ObjectKey, SkipReason};

/// Reads a Service.
///
/// Skipped as a whole: handed to another proxy, ExternalName, headless, without
/// a usable address. A bad port or address takes only itself away.
pub fn service(object: &core::Service) -> Ingested<ServiceSpec> {
    let meta = &object.metadata;
    let mut skips = Skips::new(Kind::Service, ObjectKey::of(meta));
    if let Some(name) = meta
        .labels
        .as_ref()
        .and_then(|l| l.get(LABEL_SERVICE_PROXY_NAME))
    {
        let field = format!("metadata.labels[{LABEL_SERVICE_PROXY_NAME}]");
        return skips.nothing(&field, SkipReason::OtherProxy { name: name.clone() });
    }
    if skips.object.name.is_empty() {
        return skips.nothing("metadata.name", SkipReason::Missing);
    }
    let Some(spec) = &object.spec else {
        return skips.nothing("spec", SkipReason::Missing);
    };
    if spec.type_.as_deref() == Some("ExternalName") {
        return skips.nothing("spec.type", SkipReason::ExternalName);
    }
    match spec
        .cluster_ip
        .as_deref()
        .or(first(spec.cluster_ips.as_deref()))
    {
        None | Some("") => return skips.nothing("spec.clusterIP", SkipReason::NoClusterIp),
        Some("None") => return skips.nothing("spec.clusterIP", SkipReason::Headless),
        Some(_) => {}
    }
    let cluster_ips = cluster_ips(spec, &mut skips);
    let ports = ports(spec, &mut skips);
    unsupported(spec, &mut skips);
    let created = meta.creation_timestamp.as_ref().map(|t| t.0.as_second());
    let usable = !cluster_ips.is_empty() && !ports.is_empty();
    skips.done(usable.then_some(ServiceSpec {
        created,
        cluster_ips,
        ports,
    }))
}

fn first(list: Option<&[String]>) -> Option<&str> {
    list.and_then(|l| l.first()).map(String::as_str)
}

fn cluster_ips(spec: &core::ServiceSpec, skips: &mut Skips) -> Vec<IpAddr> {
    let listed = spec.cluster_ips.as_deref().unwrap_or_default();
    let texts: Vec<(String, &str)> = if listed.is_empty() {
        spec.cluster_ip
            .iter()
            .map(|ip| ("spec.clusterIP".to_owned(), ip.as_str()))
            .collect()
    } else {
        let named = listed.iter().enumerate();
        named
            .map(|(i, ip)| (format!("spec.clusterIPs[{i}]"), ip.as_str()))
            .collect()
    };
    let mut found = Vec::new();
    for (field, text) in texts {
        let addr = parse::address(text).and_then(parse::routable);
        found.extend(skips.ok(field, addr));
    }
    found
}

fn ports(spec: &core::ServiceSpec, skips: &mut Skips) -> Vec<Port> {
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        let name = port.name.clone().unwrap_or_default();
        let protocol = skips.ok(at("protocol"), parse::protocol(port.protocol.as_deref()));
        let number = skips.ok(at("port"), parse::port(port.port));
        let (Some(protocol), Some(port)) = (protocol, number) else {
            continue;
        };
        if names.insert(name.clone()) {
            found.push(Port {
                name,
                protocol,
                port,
                index,
            });
        } else {
            skips.push(at("name"), SkipReason::DuplicatePortName { name });
        }
    }
    found
}

/// Says what the object asks for and does not get; its cluster IP works anyway.
fn unsupported(spec: &core::ServiceSpec, skips: &mut Skips) {
    let local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let node_ports = spec
        .ports
        .iter()
        .flatten()
        .any(|p| p.node_port.is_some_and(|n| n != 0));
    let external_ips = spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty());
    let asked = [
        ("spec.ports[].nodePort", "a NodePort", node_ports),
        ("spec.externalIPs", "an external IP", external_ips),
        (
            "spec.type",
            "a load balancer",
            spec.type_.as_deref() == Some("LoadBalancer"),
        ),
        (
            "spec.sessionAffinity",
            "session affinity",
            spec.session_affinity.as_deref() == Some("ClientIP"),
        ),
        (
            "spec.internalTrafficPolicy",
            "internalTrafficPolicy Local",
            local(&spec.internal_traffic_policy),
        ),
    ];
    for (field, what, is_asked) in asked {
        if is_asked {
            skips.push(field, SkipReason::Unsupported { what });
        }
    }
}
