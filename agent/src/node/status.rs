//! The Node's status, computed: facts and runtime in, `NodeStatus` out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::conditions::{Pressure, conditions};
use super::facts::Facts;
use crate::config::NodeConfig;
use crate::runtime_status::RuntimeStatus;

/// The Kubernetes release whose kubelet this agent stands in for; tools that heed
/// version skew parse it.
pub const KUBELET_VERSION: &str = concat!("v1.36.3+seaway-", env!("CARGO_PKG_VERSION"));

type Resources = BTreeMap<String, Quantity>;

/// Everything the status depends on.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// What is configured.
    pub config: &'a NodeConfig,
    /// Port of the HTTPS API.
    pub port: Option<u16>,
    /// What the machine is.
    pub facts: &'a Facts,
    /// What the runtime says.
    pub runtime: &'a RuntimeStatus,
    /// Which resources are or lately were short.
    pub pressure: Pressure,
    /// What time it is.
    pub now: Timestamp,
}

/// What the Node's status should be, starting from what it is. Keys of `capacity`
/// that others put there stay; conditions of others are left out, since the patch
/// merges conditions by type.
pub fn node_status(inputs: &Inputs<'_>, previous: &NodeStatus) -> NodeStatus {
    let capacity = capacity(inputs, previous);
    NodeStatus {
        addresses: Some(addresses(inputs.config)),
        allocatable: Some(allocatable(inputs, &capacity)),
        capacity: Some(capacity),
        conditions: Some(current_conditions(inputs, previous)),
        daemon_endpoints: inputs.port.map(|port| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(port),
            }),
        }),
        node_info: Some(node_info(inputs.facts, inputs.runtime)),
        ..NodeStatus::default()
    }
}

fn current_conditions(inputs: &Inputs<'_>, previous: &NodeStatus) -> Vec<NodeCondition> {
    let previous = previous.conditions.as_deref().unwrap_or_default();
    conditions(inputs.runtime, inputs.pressure, previous, inputs.now)
}

fn addresses(config: &NodeConfig) -> Vec<NodeAddress> {
    let ips = config.ips.iter().map(|ip| ("InternalIP", ip.to_string()));
    ips.chain([("Hostname", config.name.clone())])
        .map(|(type_, address)| NodeAddress {
            type_: type_.to_owned(),
            address,
        })
        .collect()
}

fn capacity(inputs: &Inputs<'_>, previous: &NodeStatus) -> Resources {
    let facts = inputs.facts;
    let mut capacity = previous.capacity.clone().unwrap_or_default();
    let mut set = |key: &str, value| capacity.insert(key.to_owned(), value);
    set("cpu", Quantity(facts.cpus.to_string()));
    set("memory", quantity(facts.memory_bytes));
    set("ephemeral-storage", quantity(facts.disk_bytes));
    set("pods", Quantity(inputs.config.max_pods.to_string()));
    for (kib, bytes) in &facts.hugepages_bytes {
        set(&format!("hugepages-{}", page_size(*kib)), quantity(*bytes));
    }
    capacity
}

/// What pods may use of `capacity`; keys that are not ours are given out whole.
fn allocatable(inputs: &Inputs<'_>, capacity: &Resources) -> Resources {
    let (facts, kept) = (inputs.facts, inputs.config.eviction_hard);
    let mut allocatable = capacity.clone();
    let huge: u64 = facts.hugepages_bytes.values().sum();
    let memory = facts
        .memory_bytes
        .saturating_sub(huge)
        .saturating_sub(kept.memory.of(facts.memory_bytes));
    let disk = facts
        .disk_bytes
        .saturating_sub(kept.disk.of(facts.disk_bytes));
    allocatable.insert("memory".to_owned(), quantity(memory));
    allocatable.insert("ephemeral-storage".to_owned(), quantity(disk));
    allocatable
}

/// Whole KiB in canonical form, as the API server writes it: the largest suffix that
/// leaves no fraction. Written otherwise it would look like a change every time.
fn quantity(bytes: u64) -> Quantity {
    let (mut amount, mut suffix) = (bytes / 1024, "Ki");
    if amount == 0 {
        return Quantity("0".to_owned());
    }
    for larger in ["Mi", "Gi", "Ti", "Pi"] {
        if !amount.is_multiple_of(1024) {
            break;
        }
        (amount, suffix) = (amount / 1024, larger);
    }
    Quantity(format!("{amount}{suffix}"))
}

fn page_size(kib: u64) -> String {
    match kib {
        kib if kib.is_multiple_of(1 << 20) => format!("{}Gi", kib >> 20),
        kib if kib.is_multiple_of(1 << 10) => format!("{}Mi", kib >> 10),
        kib => format!("{kib}Ki"),
    }
}

fn node_info(facts: &Facts, runtime: &RuntimeStatus) -> NodeSystemInfo {
    NodeSystemInfo {
        architecture: facts.architecture.to_owned(),
        boot_id: facts.boot_id.clone(),
        container_runtime_version: runtime.version(),
        kernel_version: facts.kernel_version.clone(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: facts.machine_id.clone(),
        operating_system: "linux".to_owned(),
        os_image: facts.os_image.clone(),
        system_uuid: facts.system_uuid.clone(),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
pub(super) mod tests;
