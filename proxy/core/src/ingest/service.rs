//! Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;

use super::{Ingested, LABEL_SERVICE_PROXY_NAME, Port, ServiceSpec, Skips, external, parse};
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
    let usable = !cluster_ips.is_empty() && !ports.is_empty();
    let external = external::policy(spec, &mut skips);
    let value = ServiceSpec {
        created: meta.creation_timestamp.as_ref().map(|t| t.0.as_second()),
        load_balancer_ips: external::load_balancer_ips(object, &cluster_ips, &mut skips),
        external_ips: external::external_ips(spec, &cluster_ips, &mut skips),
        cluster_ips,
        ports,
        internal: external::internal_policy(spec, &mut skips),
        external,
        source_ranges: external::source_ranges(spec, &mut skips),
        affinity: external::affinity(spec, &mut skips),
        health_check_node_port: external::health_check(spec, external, &mut skips),
    };
    skips.done(usable.then_some(value))
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
    let mut found = Vec::with_capacity(spec.ports.iter().flatten().count());
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let at = |field: &str| format!("spec.ports[{index}].{field}");
        let name = port.name.clone().unwrap_or_default();
        let protocol = skips.ok(at("protocol"), parse::protocol(port.protocol.as_deref()));
        let number = skips.ok(at("port"), parse::port(port.port));
        // Whatever the type: the API server clears it where it means nothing.
        let node_port = port.node_port.filter(|number| *number != 0);
        let node_port = node_port.and_then(|n| skips.ok(at("nodePort"), parse::port(n)));
        let (Some(protocol), Some(port)) = (protocol, number) else {
            continue;
        };
        if names.insert(name.clone()) {
            found.push(Port {
                name,
                protocol,
                port,
                node_port,
                index,
            });
        } else {
            skips.push(at("name"), SkipReason::DuplicatePortName { name });
        }
    }
    found
}
