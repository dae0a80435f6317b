//! Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::names::is_port_name;
use super::{FieldError, Found};

/// What no API server lets pass.
pub fn service(service: &Service) -> Vec<FieldError> {
    let mut found = Found::default();
    let Some(spec) = &service.spec else {
        found.add("spec", "required");
        return found.0;
    };
    let name = service.metadata.name.as_deref().unwrap_or_default();
    if !name.is_empty() {
        found.dns_label("metadata.name".into(), name);
    }
    fields(spec, &mut found);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let external = spec.type_.as_deref() == Some("ExternalName");
    if ports.is_empty() && !external && spec.cluster_ip.as_deref() != Some("None") {
        found.add("spec.ports", "at least one is required");
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        service_port(&path, port, &mut found);
        let name = port.name.as_deref().unwrap_or_default();
        if ports.len() > 1 && name.is_empty() {
            let message = "required where there are several ports";
            found.add(format!("{path}.name"), message);
        } else if !names.insert(name) {
            found.add(format!("{path}.name"), format!("{name:?} is there twice"));
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        if !numbers.insert((port.port, protocol)) {
            let message = format!("{} is there twice for {protocol}", port.port);
            found.add(format!("{path}.port"), message);
        }
    }
    found.0
}

fn fields(spec: &ServiceSpec, found: &mut Found) {
    let rows: [(_, _, &[&str]); 5] = [
        (
            "type",
            &spec.type_,
            &["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
        ),
        (
            "sessionAffinity",
            &spec.session_affinity,
            &["None", "ClientIP"],
        ),
        (
            "internalTrafficPolicy",
            &spec.internal_traffic_policy,
            &["Cluster", "Local"],
        ),
        (
            "externalTrafficPolicy",
            &spec.external_traffic_policy,
            &["Cluster", "Local"],
        ),
        (
            "ipFamilyPolicy",
            &spec.ip_family_policy,
            &["SingleStack", "PreferDualStack", "RequireDualStack"],
        ),
    ];
    for (field, value, known) in rows {
        found.one_of(format!("spec.{field}"), value.as_ref(), known);
    }
    if let Some(ip) = &spec.cluster_ip {
        cluster_ip("spec.clusterIP".into(), ip, found);
    }
    for (index, ip) in spec.cluster_ips.iter().flatten().enumerate() {
        cluster_ip(format!("spec.clusterIPs[{index}]"), ip, found);
    }
}

fn cluster_ip(path: String, text: &str, found: &mut Found) {
    if !matches!(text, "" | "None") && text.parse::<IpAddr>().is_err() {
        found.add(path, format!("{text:?} is neither an IP address nor None"));
    }
}

fn service_port(path: &str, port: &ServicePort, found: &mut Found) {
    found.port(format!("{path}.port"), port.port);
    let protocols = ["TCP", "UDP", "SCTP"];
    found.one_of(
        format!("{path}.protocol"),
        port.protocol.as_ref(),
        &protocols,
    );
    if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
        found.dns_label(format!("{path}.name"), name);
    }
    let target = format!("{path}.targetPort");
    match &port.target_port {
        Some(IntOrString::Int(number)) => found.port(target, *number),
        Some(IntOrString::String(name)) if !is_port_name(name) => {
            found.add(target, format!("{name:?} is not a port's name"));
        }
        _ => {}
    }
}
