//! EndpointSlices.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1 as discovery;

use super::{
    Conditions, Hints, Ingested, LABEL_HEADLESS, LABEL_SERVICE_NAME, Port, Skips, SliceEndpoint,
    SliceSpec, parse,
};
use crate::skipped::{Kind, ObjectKey, SkipReason};

/// Reads an EndpointSlice.
///
/// Skipped as a whole: of a headless Service, of no Service, of names instead
/// of addresses. A bad port or endpoint takes only itself away.
pub fn endpoint_slice(object: &discovery::EndpointSlice) -> Ingested<SliceSpec> {
    let meta = &object.metadata;
    let mut skips = Skips::new(Kind::EndpointSlice, ObjectKey::of(meta));
    let label = |name: &str| meta.labels.as_ref().and_then(|l| l.get(name));
    if label(LABEL_HEADLESS).is_some() {
        let field = format!("metadata.labels[{LABEL_HEADLESS}]");
        return skips.nothing(&field, SkipReason::HeadlessSlice);
    }
    let service = match label(LABEL_SERVICE_NAME) {
        Some(name) if !name.is_empty() => ObjectKey::new(skips.object.namespace.clone(), name),
        _ => {
            let field = format!("metadata.labels[{LABEL_SERVICE_NAME}]");
            return skips.nothing(&field, SkipReason::NoService);
        }
    };
    let family = match object.address_type.as_str() {
        "IPv4" => "IPv4",
        "IPv6" => "IPv6",
        "FQDN" => return skips.nothing("addressType", SkipReason::Fqdn),
        other => {
            let value = other.to_owned();
            return skips.nothing("addressType", SkipReason::UnknownAddressType { value });
        }
    };
    let ports = ports(object, &mut skips);
    let endpoints = endpoints(object, family, &mut skips);
    skips.done(Some(SliceSpec {
        service,
        ports,
        endpoints,
    }))
}

fn ports(object: &discovery::EndpointSlice, skips: &mut Skips) -> Vec<Port> {
    let mut found = Vec::with_capacity(object.ports.iter().flatten().count());
    for (index, port) in object.ports.iter().flatten().enumerate() {
        let at = |field: &str| format!("ports[{index}].{field}");
        let name = skips.ok(at("name"), port.name.clone().ok_or(SkipReason::Missing));
        let protocol = skips.ok(at("protocol"), parse::protocol(port.protocol.as_deref()));
        let number = port.port.ok_or(SkipReason::Missing).and_then(parse::port);
        let number = skips.ok(at("port"), number);
        if let (Some(name), Some(protocol), Some(port)) = (name, protocol, number) {
            found.push(Port {
                name,
                protocol,
                port,
                node_port: None,
                index,
            });
        }
    }
    found
}

fn endpoints(
    object: &discovery::EndpointSlice,
    family: &'static str,
    skips: &mut Skips,
) -> Vec<SliceEndpoint> {
    let mut found = Vec::with_capacity(object.endpoints.iter().flatten().count());
    for (index, endpoint) in object.endpoints.iter().flatten().enumerate() {
        let field = format!("endpoints[{index}].addresses");
        let Some(addr) = skips.ok(field, address(&endpoint.addresses, family)) else {
            continue;
        };
        let conditions = endpoint.conditions.as_ref();
        found.push(SliceEndpoint {
            addr,
            node_name: endpoint.node_name.as_deref().map(Arc::from),
            conditions: Conditions {
                ready: conditions.and_then(|c| c.ready).unwrap_or(true),
                serving: conditions.and_then(|c| c.serving).unwrap_or(true),
                terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
            },
            hints: endpoint.hints.as_ref().and_then(hints),
        });
    }
    found
}

fn hints(object: &discovery::EndpointHints) -> Option<Box<Hints>> {
    let nodes = object.for_nodes.iter().flatten();
    let zones = object.for_zones.iter().flatten();
    let hints = Hints {
        for_nodes: nodes.map(|hint| hint.name.clone()).collect(),
        for_zones: zones.map(|hint| hint.name.clone()).collect(),
    };
    (hints != Hints::default()).then(|| Box::new(hints))
}

fn address(addresses: &[String], expected: &'static str) -> Result<IpAddr, SkipReason> {
    let text = addresses.first().ok_or(SkipReason::Missing)?;
    let addr = parse::address(text)?;
    if addr.is_ipv4() != (expected == "IPv4") {
        return Err(SkipReason::WrongFamily {
            value: text.clone(),
            expected,
        });
    }
    parse::routable(addr)
}
