//! One table row per way in which an object can be odd.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::needless_pass_by_value, reason = "rows are written with json!")]

use serde_json::{Value, json};

use super::*;

mod policies;
mod services;
mod slices;

fn ingest_service(spec: &Value) -> Ingested<ServiceSpec> {
    let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec});
    service(&serde_json::from_value(object).unwrap())
}

fn messages<T>(ingested: &Ingested<T>) -> Vec<String> {
    ingested.skipped.iter().map(ToString::to_string).collect()
}

#[test]
fn objects_with_next_to_nothing_in_them() {
    assert_eq!(
        messages(&service(&k8s_openapi::api::core::v1::Service::default())),
        ["Service /: metadata.name: missing"]
    );
    let label = "EndpointSlice /: metadata.labels[kubernetes.io/service-name]: names no Service";
    assert_eq!(
        messages(&endpoint_slice(
            &k8s_openapi::api::discovery::v1::EndpointSlice::default()
        )),
        [label]
    );
}
