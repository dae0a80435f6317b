//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Found;
use crate::quantity;

/// The ones without a domain in their name; `hugepages-2Mi` and its like too.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

pub(super) fn resources(path: &str, container: &Container, found: &mut Found) {
    let Some(resources) = &container.resources else {
        return;
    };
    let path = format!("{path}.resources");
    let none = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (field, list) in [("limits", limits), ("requests", requests)] {
        let path = format!("{path}.{field}");
        for name in list.keys() {
            let standard = STANDARD.contains(&name.as_str()) || name.starts_with("hugepages-");
            if !standard && !name.contains('/') {
                let message = format!("not a resource: {}, or DOMAIN/NAME", STANDARD.join(", "));
                found.add(format!("{path}[{name}]"), message);
            }
        }
        quantities(&path, list, found);
    }
    for (name, request) in requests {
        let Some(limit) = limits.get(name) else {
            continue;
        };
        if quantity::exceeds(request, limit).unwrap_or(false) {
            let message = format!("{} is more than the limit {}", request.0, limit.0);
            found.add(format!("{path}.requests[{name}]"), message);
        }
    }
}

/// Amounts that can be read, none of them negative.
pub(super) fn quantities(path: &str, list: &BTreeMap<String, Quantity>, found: &mut Found) {
    for (name, amount) in list {
        if let Err(error) = quantity::bytes(amount) {
            found.add(format!("{path}[{name}]"), error.to_string());
        }
    }
}
