use std::path::PathBuf;

use seaway_agent_core::eviction::EvictionHard;

use super::*;

pub(in crate::node) fn config() -> NodeConfig {
    NodeConfig {
        name: "n1".into(),
        ips: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        runtime_socket: PathBuf::from("/c.sock"),
        root_dir: PathBuf::from("/root-dir"),
        pod_log_dir: PathBuf::from("/logs"),
        cni_cache_dir: PathBuf::from("/nowhere"),
        cgroup_root: "/".into(),
        run_dir: PathBuf::from("/run"),
        cluster_dns: Vec::new(),
        cluster_domain: "cluster.local".into(),
        max_pods: 110,
        eviction_hard: EvictionHard::default(),
        healthz_bind: None,
    }
}

fn facts() -> Facts {
    Facts {
        machine_id: "m".into(),
        boot_id: "b".into(),
        kernel_version: "6.18.0".into(),
        os_image: "Debian".into(),
        architecture: "amd64",
        cpus: 2,
        memory_bytes: 1 << 30,
        disk_bytes: 1000 * 1024,
        hugepages_bytes: BTreeMap::from([(2048, 64 << 20), (1 << 20, 0)]),
        ..Facts::default()
    }
}

fn status(previous: &NodeStatus) -> NodeStatus {
    status_of(&config(), previous)
}

fn status_of(config: &NodeConfig, previous: &NodeStatus) -> NodeStatus {
    let runtime = RuntimeStatus {
        ready: true,
        network_ready: true,
        runtime_name: "containerd".into(),
        runtime_version: "v2.2.9".into(),
        ..RuntimeStatus::default()
    };
    let inputs = Inputs {
        config,
        port: Some(10250),
        facts: &facts(),
        runtime: &runtime,
        pressure: Pressure::default(),
        now: Timestamp::from_second(100).unwrap(),
    };
    node_status(&inputs, previous)
}

#[track_caller]
fn check(resources: Option<&Resources>, key: &str, want: &str) {
    let value = resources
        .unwrap()
        .get(key)
        .map(|quantity| quantity.0.as_str());
    assert_eq!(value, Some(want), "{key}");
}

#[test]
fn capacity_and_what_is_left_for_pods() {
    let status = status(&NodeStatus::default());
    let (capacity, allocatable) = (status.capacity.as_ref(), status.allocatable.as_ref());
    check(capacity, "cpu", "2");
    check(capacity, "memory", "1Gi");
    check(capacity, "pods", "110");
    check(capacity, "ephemeral-storage", "1000Ki");
    check(capacity, "hugepages-2Mi", "64Mi");
    check(capacity, "hugepages-1Gi", "0");
    check(allocatable, "cpu", "2");
    check(allocatable, "memory", "860Mi");
    check(allocatable, "ephemeral-storage", "900Ki");
}

#[test]
fn pods_get_nothing_of_what_has_to_stay_free() {
    let mut config = config();
    config.eviction_hard = "memory.available<50%,nodefs.available<0".parse().unwrap();
    let status = status_of(&config, &NodeStatus::default());
    let allocatable = status.allocatable.as_ref();
    check(allocatable, "memory", "448Mi");
    check(allocatable, "ephemeral-storage", "1000Ki");
}

#[test]
fn resources_of_others_are_kept_and_given_out() {
    let gpu = Resources::from([("example.com/gpu".to_owned(), Quantity("5".into()))]);
    let status = status(&NodeStatus {
        capacity: Some(gpu),
        ..NodeStatus::default()
    });
    check(status.capacity.as_ref(), "example.com/gpu", "5");
    check(status.allocatable.as_ref(), "example.com/gpu", "5");
    check(status.capacity.as_ref(), "cpu", "2");
}

#[test]
fn addresses_are_one_per_family_and_the_name() {
    let status = status(&NodeStatus::default());
    let addresses: Vec<_> = status
        .addresses
        .unwrap()
        .into_iter()
        .map(|address| format!("{} {}", address.type_, address.address))
        .collect();
    assert_eq!(
        addresses,
        ["InternalIP 10.0.0.1", "InternalIP fd00::1", "Hostname n1"]
    );
}

#[test]
fn node_info_names_runtime_and_versions() {
    let info = status(&NodeStatus::default()).node_info.unwrap();
    assert_eq!(info.container_runtime_version, "containerd://2.2.9");
    assert!(
        info.kubelet_version.starts_with("v1.36."),
        "{}",
        info.kubelet_version
    );
    assert_eq!(
        (info.machine_id.as_str(), info.boot_id.as_str()),
        ("m", "b")
    );
    assert_eq!(info.kube_proxy_version, "");
}

#[test]
fn the_same_inputs_give_the_same_status() {
    let first = status(&NodeStatus::default());
    assert_eq!(status(&first), first);
}
