//! Services in a table.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{age, heading, names};
use crate::local::Listing;

/// Endpoints shown before the rest is only counted, as kubectl does.
const SHOWN: usize = 3;

pub(super) fn rows(listing: &Listing, now: Timestamp) -> Vec<Vec<String>> {
    let slices = listing.endpoint_slices.as_deref();
    let mut rows: Vec<_> = listing
        .services
        .iter()
        .map(|service| row(service, slices, now))
        .collect();
    rows.sort();
    let mut columns = vec!["NAMESPACE", "NAME", "TYPE", "CLUSTER-IP", "PORT(S)"];
    columns.extend(slices.map(|_| "ENDPOINTS"));
    columns.push("AGE");
    rows.insert(0, heading(&columns));
    rows
}

fn row(service: &Service, slices: Option<&[EndpointSlice]>, now: Timestamp) -> Vec<String> {
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.iter().flatten();
    let ports = ports.map(|port| {
        format!(
            "{}/{}",
            port.port,
            port.protocol.as_deref().unwrap_or("TCP")
        )
    });
    let [namespace, name] = names(&service.metadata);
    let mut cells = vec![
        namespace,
        name,
        spec.type_.clone().unwrap_or_default(),
        spec.cluster_ip
            .clone()
            .unwrap_or_else(|| "<none>".to_owned()),
        ports.collect::<Vec<_>>().join(","),
    ];
    cells.extend(slices.map(|slices| endpoints(service, slices)));
    cells.push(age(&service.metadata, now));
    cells
}

/// Addresses that are ready.
fn endpoints(service: &Service, slices: &[EndpointSlice]) -> String {
    let label = "kubernetes.io/service-name";
    let ours = slices.iter().filter(|slice| {
        let labels = slice.metadata.labels.as_ref();
        slice.metadata.namespace == service.metadata.namespace
            && labels.and_then(|labels| labels.get(label)) == service.metadata.name.as_ref()
    });
    let mut addresses: Vec<String> = ours.flat_map(ready_addresses).collect();
    addresses.sort();
    let more = addresses.len().saturating_sub(SHOWN);
    addresses.truncate(SHOWN);
    match (addresses.is_empty(), more) {
        (true, _) => "<none>".to_owned(),
        (false, 0) => addresses.join(","),
        (false, more) => format!("{} + {more} more...", addresses.join(",")),
    }
}

fn ready_addresses(slice: &EndpointSlice) -> impl Iterator<Item = String> {
    let endpoints = slice.endpoints.iter().flatten().filter(|endpoint| {
        endpoint
            .conditions
            .as_ref()
            .is_none_or(|conditions| conditions.ready != Some(false))
    });
    endpoints.flat_map(|endpoint| {
        endpoint.addresses.iter().flat_map(|address| {
            let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
            ports.map(move |port| format!("{address}:{port}"))
        })
    })
}
