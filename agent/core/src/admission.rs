//! Whether a pod may run on this node at all.
//!
//! The scheduler has asked the same, of an older state of the node or not at all: pods
//! may name their node themselves.

mod affinity;
mod ports;
mod taints;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::state::Rejection;
use crate::{qos, quantity, spec, support, validate};
pub use ports::HostPort;

/// What a pod takes from the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Ports of the node.
    pub host_ports: BTreeSet<HostPort>,
}

/// What a pod takes: the larger of its app containers together and its largest
/// init container, plus its overhead.
pub fn demand(pod: &Pod) -> Demand {
    let cpu = request(pod, qos::cpu_request);
    let memory = request(pod, qos::memory_request);
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref());
    let extra = |resource: &str, read: fn(&Quantity) -> Result<u64, quantity::QuantityError>| {
        overhead
            .and_then(|list| read(list.get(resource)?).ok())
            .unwrap_or(0)
    };
    Demand {
        cpu_millis: cpu.saturating_add(extra("cpu", quantity::millis)),
        memory_bytes: memory.saturating_add(extra("memory", quantity::bytes)),
        host_ports: ports::of(pod),
    }
}

fn request(pod: &Pod, of: impl Fn(&k8s_openapi::api::core::v1::Container) -> u64) -> u64 {
    let apps = spec::containers(pod)
        .iter()
        .map(&of)
        .fold(0, u64::saturating_add);
    let init = spec::init_containers(pod)
        .iter()
        .map(&of)
        .max()
        .unwrap_or(0);
    apps.max(init)
}

/// Decides about one pod. `others` are the pods that hold resources already. A node
/// that has not published its allocatable amounts yet limits nothing.
pub fn admit(pod: &Pod, node: Option<&Node>, others: &[Demand]) -> Result<(), Rejection> {
    let unsupported = support::unsupported(pod);
    if !unsupported.is_empty() {
        let message = format!("{} not supported by this agent", unsupported.join(", "));
        return Err(Rejection {
            reason: "PodFeatureUnsupported",
            message,
        });
    }
    // An API server refuses these; a source without one may not.
    let invalid = validate::pod(pod);
    if !invalid.is_empty() {
        let texts: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        return Err(Rejection {
            reason: "InvalidPod",
            message: texts.join("; "),
        });
    }
    let Some(node) = node else {
        return Ok(());
    };
    let wants = demand(pod);
    let empty = BTreeMap::new();
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref())
        .unwrap_or(&empty);
    // kubelet's order: the first that fails is the one that is told.
    fits(&wants, allocatable, others)?;
    affinity::selects(pod, node)?;
    ports::are_free(&wants.host_ports, others)?;
    taints::tolerates(pod, node)
}

fn fits(
    wants: &Demand,
    allocatable: &BTreeMap<String, Quantity>,
    others: &[Demand],
) -> Result<(), Rejection> {
    let used = |get: fn(&Demand) -> u64| others.iter().map(get).fold(0, u64::saturating_add);
    let count = u64::try_from(others.len()).unwrap_or(u64::MAX);
    let rows = [
        (
            "pods",
            "OutOfpods",
            1,
            count,
            allocatable.get("pods").map(quantity::bytes),
        ),
        (
            "cpu",
            "OutOfcpu",
            wants.cpu_millis,
            used(|d| d.cpu_millis),
            allocatable.get("cpu").map(quantity::millis),
        ),
        (
            "memory",
            "OutOfmemory",
            wants.memory_bytes,
            used(|d| d.memory_bytes),
            allocatable.get("memory").map(quantity::bytes),
        ),
    ];
    for (resource, reason, wanted, used, capacity) in rows {
        let Some(Ok(capacity)) = capacity else {
            continue;
        };
        if wanted > 0 && used.saturating_add(wanted) > capacity {
            let message = format!(
                "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
            );
            return Err(Rejection { reason, message });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(cpu: &str, memory: &str) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}))
        .unwrap()
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"}}
        }))
        .unwrap()
    }

    #[test]
    fn resources() {
        let one = Demand {
            cpu_millis: 1000,
            memory_bytes: 1 << 29,
            ..Demand::default()
        };
        let one = || one.clone();
        for (cpu, memory, others, want) in [
            ("1", "512Mi", vec![one()], None),
            ("1001m", "1Mi", vec![one()], Some("OutOfcpu")),
            ("1", "513Mi", vec![one()], Some("OutOfmemory")),
            ("0", "0", vec![one(), one()], Some("OutOfpods")),
            ("2", "1Gi", vec![], None),
            ("3", "2Gi", vec![], Some("OutOfcpu")),
        ] {
            let got = admit(&pod(cpu, memory), Some(&node()), &others)
                .err()
                .map(|r| r.reason);
            assert_eq!(got, want, "{cpu} {memory} {others:?}");
        }
        assert_eq!(
            admit(&pod("100", "1Ti"), None, &[]),
            Ok(()),
            "unknown node limits nothing"
        );
    }

    #[test]
    fn init_containers_count_by_their_largest() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "overhead": {"cpu": "10m"},
            "initContainers": [
                {"name": "a", "resources": {"requests": {"cpu": "700m"}}},
                {"name": "b", "resources": {"requests": {"cpu": "300m", "memory": "1Mi"}}}],
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "200m"}}},
                {"name": "d", "resources": {"limits": {"cpu": "300m"}}}]}}))
        .unwrap();
        assert_eq!(
            demand(&pod),
            Demand {
                cpu_millis: 710,
                memory_bytes: 1 << 20,
                host_ports: BTreeSet::new(),
            }
        );
    }

    /// Everything wrong at once is told one by one, in kubelet's order.
    #[test]
    fn order_of_reasons() {
        let mut node = node();
        node.spec = serde_json::from_value(json!({
            "taints": [{"key": "k", "effect": "NoExecute"}]}))
        .unwrap();
        let mut pod: Pod = serde_json::from_value(json!({"spec": {
            "hostNetwork": true, "hostUsers": false, "nodeSelector": {"disk": "hdd"},
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "3"}}}]}}))
        .unwrap();
        let other = Demand {
            host_ports: ports::of(&pod),
            ..Demand::default()
        };
        let others = [other];
        let check = |pod: &Pod, want: Option<&str>| {
            let got = admit(pod, Some(&node), &others).err();
            assert_eq!(got.as_ref().map(|r| r.reason), want, "{got:?}");
        };
        check(&pod, Some("PodFeatureUnsupported"));
        let message = admit(&pod, None, &[]).unwrap_err().message;
        assert_eq!(message, "spec.hostUsers: false not supported by this agent");
        pod.spec.as_mut().unwrap().host_users = None;
        pod.spec.as_mut().unwrap().dns_policy = Some("First".into());
        check(&pod, Some("InvalidPod"));
        let message = admit(&pod, None, &[]).unwrap_err().message;
        assert!(message.starts_with("spec.dnsPolicy: \"First\" is none of"));
        pod.spec.as_mut().unwrap().dns_policy = None;
        check(&pod, Some("OutOfcpu"));
        pod.spec.as_mut().unwrap().containers[0].resources = None;
        check(&pod, Some("NodeAffinity"));
        pod.spec.as_mut().unwrap().node_selector = None;
        check(&pod, Some("NodePorts"));
        pod.spec.as_mut().unwrap().host_network = None;
        check(&pod, Some("TaintToleration"));
        pod.spec.as_mut().unwrap().tolerations =
            serde_json::from_value(json!([{"operator": "Exists"}])).unwrap();
        check(&pod, None);
    }
}
