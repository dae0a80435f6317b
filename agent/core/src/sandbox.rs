//! What the runtime is told about a pod's sandbox, as plain data.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::dns::DnsConfig;
use crate::hosts;
use crate::qos::{self, CgroupDriver};
use crate::security::Seccomp;
use crate::spec;

/// Labels by which pods are found in the runtime; `crictl` and log shippers know
/// them as well.
pub mod labels {
    /// The pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// The pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// The pod's UID.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// The container's name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// Annotation: [`crate::spec::container_hash`].
    pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
    /// Annotation: instances before this one.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// Annotation: where the container leaves its last words.
    pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// Annotation: whether its log may stand in for them.
    pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// Annotation: seconds from the stop signal to the kill, for an agent that
    /// finds the sandbox without its pod.
    pub const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// Who shares a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceMode {
    /// The containers of the pod.
    Pod,
    /// Nobody.
    Container,
    /// The whole node.
    Node,
}

/// Namespaces of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// Network.
    pub network: NamespaceMode,
    /// Processes.
    pub pid: NamespaceMode,
    /// System V IPC.
    pub ipc: NamespaceMode,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the node that leads to one of the pod: a container's `hostPort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// Of both ports.
    pub protocol: Protocol,
    /// The pod's, 1 to 65535.
    pub container_port: i32,
    /// The node's, 1 to 65535.
    pub host_port: i32,
    /// The node's address; empty: all of them.
    pub host_ip: String,
}

/// A sandbox to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// The pod's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's UID.
    pub uid: String,
    /// Sandboxes before this one.
    pub attempt: u32,
    /// Empty on the node's network.
    pub hostname: String,
    /// Where container logs go.
    pub log_directory: String,
    /// Name resolution.
    pub dns: DnsConfig,
    /// The node's ports that lead to the pod.
    pub port_mappings: Vec<PortMapping>,
    /// The pod's and the runtime's own labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations, and ours.
    pub annotations: BTreeMap<String, String>,
    /// In the form of the runtime's driver.
    pub cgroup_parent: String,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Some container is privileged.
    pub privileged: bool,
    /// User of the pause process.
    pub run_as_user: Option<i64>,
    /// Group of the pause process.
    pub run_as_group: Option<i64>,
    /// Further groups.
    pub supplemental_groups: Vec<i64>,
    /// System call filter of the pause process.
    pub seccomp: Seccomp,
}

/// Namespaces of `pod`.
pub fn namespaces(pod: &Pod) -> Namespaces {
    let node_or = |node: bool, other| if node { NamespaceMode::Node } else { other };
    let shared = if spec::share_process_namespace(pod) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    Namespaces {
        network: node_or(spec::host_network(pod), NamespaceMode::Pod),
        pid: node_or(spec::host_pid(pod), shared),
        ipc: node_or(spec::host_ipc(pod), NamespaceMode::Pod),
    }
}

/// The node's ports that lead to `pod`, in the order of its containers. None on the node's
/// network, where containers take them themselves. Init containers get none, as with kubelet.
pub fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if spec::host_network(pod) {
        return Vec::new();
    }
    let ports = spec::containers(pod)
        .iter()
        .flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(PortMapping {
                protocol: port.protocol.as_deref().map_or(Protocol::Tcp, protocol),
                container_port: port.container_port,
                host_port: port.host_port.filter(|port| *port > 0)?,
                host_ip: port.host_ip.clone().unwrap_or_default(),
            })
        })
        .collect()
}

/// The API server lets no other one through, and validation refuses those of a manifest.
fn protocol(name: &str) -> Protocol {
    match name {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    }
}

/// The directory of a pod's logs below `root`.
pub fn log_directory(root: &str, pod: &Pod) -> String {
    format!(
        "{root}/{}_{}_{}",
        spec::namespace(pod),
        spec::name(pod),
        spec::uid(pod)
    )
}

/// The sandbox of `pod`.
pub fn config(
    pod: &Pod,
    attempt: u32,
    dns: DnsConfig,
    log_root: &str,
    cgroup_root: &str,
    driver: CgroupDriver,
) -> SandboxConfig {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(pod_labels(pod));
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(labels::GRACE_PERIOD.into(), spec_grace(pod).to_string());
    let privileged = spec::all_containers(pod).any(|container| {
        container
            .security_context
            .as_ref()
            .and_then(|c| c.privileged)
            == Some(true)
    });
    SandboxConfig {
        name: spec::name(pod).into(),
        namespace: spec::namespace(pod).into(),
        uid: spec::uid(pod).into(),
        attempt,
        hostname: if spec::host_network(pod) {
            String::new()
        } else {
            hosts::hostname(pod)
        },
        log_directory: log_directory(log_root, pod),
        dns,
        port_mappings: port_mappings(pod),
        labels,
        annotations,
        cgroup_parent: qos::cgroup_parent(cgroup_root, driver, pod),
        namespaces: namespaces(pod),
        privileged,
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups: crate::security::groups(pod),
        seccomp: Seccomp::RuntimeDefault,
    }
}

/// The labels by which the pod is found.
pub fn pod_labels(pod: &Pod) -> [(String, String); 3] {
    [
        (labels::POD_NAME.to_owned(), spec::name(pod).to_owned()),
        (
            labels::POD_NAMESPACE.to_owned(),
            spec::namespace(pod).to_owned(),
        ),
        (labels::POD_UID.to_owned(), spec::uid(pod).to_owned()),
    ]
}

fn spec_grace(pod: &Pod) -> i64 {
    pod.spec
        .as_ref()
        .and_then(|s| s.termination_grace_period_seconds)
        .unwrap_or(30)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::pod;

    #[test]
    fn host_ports_of_containers_are_mapped() {
        let spec = json!({
            "initContainers": [{"name": "i", "ports": [{"containerPort": 9, "hostPort": 9}]}],
            "containers": [
                {"name": "a", "ports": [{"containerPort": 80, "hostPort": 8080}]},
                {"name": "b", "ports": [
                    {"containerPort": 53},
                    {"containerPort": 54, "hostPort": 0},
                    {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"},
                    {"containerPort": 7, "hostPort": 7, "protocol": "SCTP"}]}]});
        let map = |protocol, container_port, host_port, host_ip: &str| PortMapping {
            protocol,
            container_port,
            host_port,
            host_ip: host_ip.into(),
        };
        let want = vec![
            map(Protocol::Tcp, 80, 8080, ""),
            map(Protocol::Udp, 53, 53, "10.0.0.1"),
            map(Protocol::Sctp, 7, 7, ""),
        ];
        assert_eq!(port_mappings(&pod(spec.clone())), want);
        let mut on_node = spec;
        on_node["hostNetwork"] = json!(true);
        assert_eq!(port_mappings(&pod(on_node)), []);
    }
}
