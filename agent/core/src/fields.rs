//! The downward API: fields of a pod and resources of a container as text,
//! for environment variables (`fieldRef`, `resourceFieldRef`) and volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::payload::format_map;
use crate::quantity;

/// A downward API reference cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Not one of the API's field paths.
    #[error("unsupported fieldPath: {0}")]
    UnsupportedPath(String),
    /// Not one of the API's resources.
    #[error("unsupported container resource: {0}")]
    UnsupportedResource(String),
    /// No container of that name.
    #[error("container {0} not found")]
    NoContainer(String),
    /// The value or the divisor is not a quantity.
    #[error("resource {resource}")]
    Quantity {
        /// `limits.cpu`, for example.
        resource: String,
        /// Why.
        #[source]
        source: quantity::QuantityError,
    },
}

/// The value of `fieldPath` in `pod`; empty where the pod has none (yet).
pub fn field_value(pod: &Pod, path: &str) -> Result<String, FieldError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    if let Some(key) = subscript(path, "metadata.labels") {
        return Ok(entry(meta.labels.as_ref(), key));
    }
    if let Some(key) = subscript(path, "metadata.annotations") {
        return Ok(entry(meta.annotations.as_ref(), key));
    }
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(format_map(meta.labels.as_ref())),
        "metadata.annotations" => Some(format_map(meta.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" => status.and_then(|status| status.host_ip.clone()),
        "status.podIP" => status.and_then(|status| status.pod_ip.clone()),
        "status.hostIPs" => status.and_then(|status| {
            status
                .host_ips
                .as_ref()
                .map(|ips| join(ips.iter().map(|ip| ip.ip.as_str())))
        }),
        "status.podIPs" => status.and_then(|status| {
            status
                .pod_ips
                .as_ref()
                .map(|ips| join(ips.iter().map(|ip| ip.ip.as_str())))
        }),
        other => return Err(FieldError::UnsupportedPath(other.into())),
    };
    Ok(value.unwrap_or_default())
}

fn join<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

/// The key of `prefix['key']`.
fn subscript<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    path.strip_prefix(prefix)?
        .strip_prefix("['")?
        .strip_suffix("']")
}

fn entry(map: Option<&BTreeMap<String, String>>, key: &str) -> String {
    map.and_then(|map| map.get(key))
        .cloned()
        .unwrap_or_default()
}

/// The value of a container's resource, divided and rounded up.
///
/// An unset limit is the node's allocatable amount; an unset request is 0, or the
/// limit where there is one, as the API server defaults it.
/// `container` is used where the selector names none.
pub fn resource_value(
    pod: &Pod,
    container: Option<&str>,
    selector: &ResourceFieldSelector,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, FieldError> {
    let name = selector
        .container_name
        .as_deref()
        .or(container)
        .unwrap_or_default();
    let spec = pod.spec.as_ref();
    let resources = spec
        .into_iter()
        .flat_map(|spec| {
            spec.containers
                .iter()
                .chain(spec.init_containers.iter().flatten())
        })
        .find(|container| container.name == name)
        .ok_or_else(|| FieldError::NoContainer(name.into()))?
        .resources
        .clone()
        .unwrap_or_default();
    let unsupported = || FieldError::UnsupportedResource(selector.resource.clone());
    let (list, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let known = matches!(resource, "cpu" | "memory" | "ephemeral-storage")
        || resource.starts_with("hugepages-");
    if !known {
        return Err(unsupported());
    }
    let limit = resources
        .limits
        .as_ref()
        .and_then(|limits| limits.get(resource));
    let value = match list {
        "limits" => limit.or_else(|| allocatable.get(resource)),
        "requests" => resources
            .requests
            .as_ref()
            .and_then(|requests| requests.get(resource))
            .or(limit),
        _ => return Err(unsupported()),
    };
    let zero = Quantity("0".into());
    let divisor = selector.divisor.as_ref().unwrap_or(&zero);
    quantity::divided(value.unwrap_or(&zero), divisor)
        .map(|value| value.to_string())
        .map_err(|source| FieldError::Quantity {
            resource: selector.resource.clone(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app/x": "web", "b": "c"}},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1250m"}, "requests": {"memory": "32Mi"}}}]},
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
        }))
        .unwrap()
    }

    #[test]
    fn fields() {
        for (path, want) in [
            ("metadata.name", "p"),
            ("metadata.labels['app/x']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.labels", "app/x=\"web\"\nb=\"c\""),
            ("spec.nodeName", "n1"),
            ("status.podIPs", "10.0.0.1,fd00::1"),
            ("status.hostIP", ""),
        ] {
            assert_eq!(field_value(&pod(), path).as_deref(), Ok(want), "{path}");
        }
        assert!(field_value(&pod(), "spec.containers").is_err());
    }

    #[test]
    fn resources() {
        let allocatable = [("memory".to_owned(), Quantity("1Gi".into()))].into();
        let value = |resource: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                container_name: None,
                divisor: Some(Quantity(divisor.into())),
                resource: resource.into(),
            };
            resource_value(&pod(), Some("c"), &selector, &allocatable)
        };
        assert_eq!(value("limits.cpu", "1").as_deref(), Ok("2"));
        assert_eq!(value("limits.cpu", "1m").as_deref(), Ok("1250"));
        assert_eq!(value("requests.cpu", "1m").as_deref(), Ok("1250"));
        assert_eq!(value("requests.memory", "1Mi").as_deref(), Ok("32"));
        assert_eq!(
            value("limits.memory", "1Mi").as_deref(),
            Ok("1024"),
            "allocatable"
        );
        assert!(value("limits.gpu", "1").is_err());
    }
}
