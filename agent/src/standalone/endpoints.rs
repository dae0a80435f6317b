//! Which pods answer for a Service: what the endpoint slice controller computes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Label by which consumers find a Service's slices.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Label that says who made a slice.
const MANAGED_BY: (&str, &str) = (
    "endpointslice.kubernetes.io/managed-by",
    "seaway-standalone",
);

/// Port name, protocol, number on the pod.
type Ports = Vec<(String, String, i32)>;

/// The slices of one Service: one for each set of port numbers, since a named target
/// port may differ between pods. A Service without a selector has none.
pub(super) fn slices<'a>(
    service: &Service,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> Vec<EndpointSlice> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let Some(selector) = spec
        .selector
        .as_ref()
        .filter(|selector| !selector.is_empty())
    else {
        return Vec::new();
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let publish_all = spec.publish_not_ready_addresses == Some(true);
    let mut by_ports: BTreeMap<Ports, Vec<Endpoint>> = BTreeMap::new();
    for pod in pods {
        if pod.metadata.namespace != service.metadata.namespace || !matches(selector, pod) {
            continue;
        }
        if let Some(endpoint) = endpoint(pod, publish_all) {
            by_ports
                .entry(pod_ports(ports, pod))
                .or_default()
                .push(endpoint);
        }
    }
    if by_ports.is_empty() {
        // An empty slice tells a Service that has no endpoints from one not computed.
        by_ports.insert(pod_ports(ports, &Pod::default()), Vec::new());
    }
    let numbered = by_ports.into_iter().enumerate();
    numbered
        .map(|(index, (ports, endpoints))| slice(service, index, ports, endpoints))
        .collect()
}

fn matches(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// A pod that has an address and has not ended.
fn endpoint(pod: &Pod, publish_all: bool) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let address = status
        .pod_ip
        .clone()
        .filter(|address| !address.is_empty())?;
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|c| c.type_ == "Ready" && c.status == "True");
    let serving = ready || publish_all;
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publish_all || (ready && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// A named port that this pod does not have is left out.
fn pod_ports(ports: &[ServicePort], pod: &Pod) -> Ports {
    let number = |port: &ServicePort| match &port.target_port {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => named_port(pod, name, protocol(port)),
    };
    ports
        .iter()
        .filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            Some((name, protocol(port).to_owned(), number(port)?))
        })
        .collect()
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn named_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut ports = containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    })?;
    Some(port.container_port)
}

fn slice(service: &Service, index: usize, ports: Ports, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let labels = [(SERVICE_NAME, name.as_str()), MANAGED_BY];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{index}")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.into_iter().collect()),
            ..ObjectMeta::default()
        },
        address_type: "IPv4".to_owned(),
        endpoints: Some(endpoints),
        ports: Some(
            ports
                .into_iter()
                .map(|(name, protocol, port)| EndpointPort {
                    name: Some(name),
                    protocol: Some(protocol),
                    port: Some(port),
                    ..EndpointPort::default()
                })
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests;
