//! What the runtime is told about a container, as plain data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use crate::expand::expand;
use crate::qos::{self, LinuxResources};
use crate::sandbox::{self, Namespaces, labels};
use crate::security::{self, SecurityConfig};
use crate::spec;

/// How mounts travel between node and container (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all.
    Private,
    /// The node's later mounts appear in the container.
    HostToContainer,
    /// Both ways.
    Bidirectional,
}

/// A mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the node.
    pub host_path: PathBuf,
    /// In the container.
    pub container_path: String,
    /// Cannot be written.
    pub read_only: bool,
    /// Propagation.
    pub propagation: Propagation,
}

/// A container to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Name in the spec.
    pub name: String,
    /// Instances before this one.
    pub attempt: u32,
    /// As the runtime knows it.
    pub image_ref: String,
    /// As the spec names it.
    pub image: String,
    /// The image's where empty.
    pub command: Vec<String>,
    /// The image's where this and `command` are empty.
    pub args: Vec<String>,
    /// The image's where empty.
    pub working_dir: String,
    /// Environment beside the image's.
    pub env: Vec<(String, String)>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Below the sandbox's log directory.
    pub log_path: String,
    /// Keeps standard input open.
    pub stdin: bool,
    /// Closes it after the first client.
    pub stdin_once: bool,
    /// Has a terminal.
    pub tty: bool,
    /// For the kernel.
    pub resources: LinuxResources,
    /// Rights.
    pub security: SecurityConfig,
    /// Namespaces.
    pub namespaces: Namespaces,
}

/// A volume in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    /// On the node.
    pub path: PathBuf,
    /// Whoever mounts it.
    pub read_only: bool,
}

/// Files of the agent's that containers get.
#[derive(Clone, Copy, Debug)]
pub struct OwnFiles<'a> {
    /// For `/etc/hosts`.
    pub hosts: &'a Path,
    /// For the termination message.
    pub termination: &'a Path,
}

/// The spec names a volume that the pod does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container {container} mounts volume {volume:?}, which the pod does not have")]
pub struct MountError {
    container: String,
    volume: String,
}

/// Where a container leaves its last words, unless it says otherwise.
const TERMINATION_PATH: &str = "/dev/termination-log";

/// All mounts of a container: its volumes and the agent's files.
pub fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, MountedVolume>,
    files: OwnFiles<'_>,
) -> Result<Vec<Mount>, MountError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes.get(&mount.name).ok_or_else(|| MountError {
            container: container.name.clone(),
            volume: mount.name.clone(),
        })?;
        mounts.push(volume_mount(mount, volume));
    }
    let is_taken = |path: &str| mounts.iter().any(|mount| mount.container_path == path);
    if !is_taken("/etc/hosts") {
        mounts.push(own_file(files.hosts, "/etc/hosts"));
    }
    let path = termination_path(container).to_owned();
    if !path.is_empty() {
        mounts.push(own_file(files.termination, &path));
    }
    Ok(mounts)
}

/// Where the container leaves its last words.
pub fn termination_path(container: &Container) -> &str {
    container
        .termination_message_path
        .as_deref()
        .unwrap_or(TERMINATION_PATH)
}

fn volume_mount(mount: &VolumeMount, volume: &MountedVolume) -> Mount {
    let path = mount.mount_path.as_str();
    Mount {
        host_path: volume.path.clone(),
        container_path: if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        },
        read_only: volume.read_only || mount.read_only == Some(true),
        propagation: match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            _ => Propagation::Private,
        },
    }
}

fn own_file(host: &Path, container: &str) -> Mount {
    Mount {
        host_path: host.to_owned(),
        container_path: container.to_owned(),
        read_only: false,
        propagation: Propagation::Private,
    }
}

/// One container. `env` and `mounts` are already resolved; `memory_capacity` is the
/// node's memory in bytes.
pub fn config(
    pod: &Pod,
    container: &Container,
    attempt: u32,
    image_ref: &str,
    env: Vec<(String, String)>,
    mounts: Vec<Mount>,
    memory_capacity: u64,
) -> ContainerConfig {
    let expanded = |list: &Option<Vec<String>>| -> Vec<String> {
        let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        list.iter()
            .flatten()
            .map(|text| expand(text, lookup))
            .collect()
    };
    let mut labels: BTreeMap<String, String> = sandbox::pod_labels(pod).into();
    labels.insert(labels::CONTAINER_NAME.into(), container.name.clone());
    ContainerConfig {
        name: container.name.clone(),
        attempt,
        image_ref: image_ref.to_owned(),
        image: container.image.clone().unwrap_or_default(),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts,
        labels,
        annotations: annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        resources: qos::linux_resources(pod, container, memory_capacity),
        security: security::config(pod, container),
        namespaces: sandbox::namespaces(pod),
        env,
    }
}

fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let policy = container
        .termination_message_policy
        .as_deref()
        .unwrap_or("File");
    let grace = pod
        .spec
        .as_ref()
        .and_then(|s| s.termination_grace_period_seconds)
        .unwrap_or(30);
    [
        (labels::CONTAINER_HASH, spec::container_hash(container)),
        (labels::RESTART_COUNT, attempt.to_string()),
        (
            labels::TERMINATION_PATH,
            termination_path(container).to_owned(),
        ),
        (labels::TERMINATION_POLICY, policy.to_owned()),
        (labels::GRACE_PERIOD, grace.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(container: serde_json::Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"hostPID": true, "containers": [container]}}),
        )
        .unwrap()
    }

    fn mounts_of(value: serde_json::Value) -> Result<Vec<Mount>, MountError> {
        let pod = pod(value);
        let volume = MountedVolume {
            path: "/pods/u/v".into(),
            read_only: false,
        };
        let files = OwnFiles {
            hosts: Path::new("/p/etc-hosts"),
            termination: Path::new("/p/last"),
        };
        mounts(
            &spec::containers(&pod)[0],
            &[("v".to_owned(), volume)].into(),
            files,
        )
    }

    #[test]
    fn mounts_and_own_files() {
        let mounts = mounts_of(json!({"name": "c", "volumeMounts": [
            {"name": "v", "mountPath": "/data", "readOnly": true},
            {"name": "v", "mountPath": "rel", "mountPropagation": "Bidirectional"}]}))
        .unwrap();
        let rows: Vec<_> = mounts
            .iter()
            .map(|m| (m.container_path.as_str(), m.read_only, m.propagation))
            .collect();
        let want = [
            ("/data", true, Propagation::Private),
            ("/rel", false, Propagation::Bidirectional),
            ("/etc/hosts", false, Propagation::Private),
            ("/dev/termination-log", false, Propagation::Private),
        ];
        assert_eq!(rows, want);
    }

    #[test]
    fn own_hosts_file_of_the_container_wins() {
        let mounts = mounts_of(json!({"name": "c", "terminationMessagePath": "/x",
            "volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]}))
        .unwrap();
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].container_path, "/x");
        let error =
            mounts_of(json!({"name": "c", "volumeMounts": [{"name": "w", "mountPath": "/d"}]}));
        let want = "container c mounts volume \"w\", which the pod does not have";
        assert_eq!(error.unwrap_err().to_string(), want);
    }

    #[test]
    fn command_labels_and_paths() {
        let pod = pod(
            json!({"name": "c", "image": "i:1", "command": ["sh", "$(A)"],
            "args": ["$$(A)", "$(B)"], "tty": true}),
        );
        let env = vec![("A".to_owned(), "1".to_owned())];
        let config = config(
            &pod,
            &spec::containers(&pod)[0],
            3,
            "sha256:00",
            env,
            Vec::new(),
            1 << 30,
        );
        assert_eq!(config.command, ["sh", "1"]);
        assert_eq!(config.args, ["$(A)", "$(B)"]);
        assert_eq!(config.log_path, "c/3.log");
        assert_eq!(config.labels["io.kubernetes.container.name"], "c");
        assert_eq!(
            config.annotations["io.kubernetes.container.restartCount"],
            "3"
        );
        assert_eq!(config.namespaces.pid, sandbox::NamespaceMode::Node);
        assert!(config.tty && !config.stdin);
    }
}
