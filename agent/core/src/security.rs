//! `securityContext`: the pod's and the container's, merged; the container's wins.

use k8s_openapi::api::core::v1::{Container, Pod, SeccompProfile};

use crate::spec;

/// A system call filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// The runtime's own.
    RuntimeDefault,
    /// None.
    Unconfined,
}

/// What a container may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityConfig {
    /// Everything.
    pub privileged: bool,
    /// Capabilities beside the runtime's default set.
    pub add_capabilities: Vec<String>,
    /// Capabilities taken away.
    pub drop_capabilities: Vec<String>,
    /// The image's where there is none.
    pub run_as_user: Option<i64>,
    /// The image's where there is none.
    pub run_as_group: Option<i64>,
    /// Further groups, the volumes' group among them.
    pub supplemental_groups: Vec<i64>,
    /// The root file system cannot be written.
    pub read_only_root: bool,
    /// No process may gain privileges (setuid).
    pub no_new_privileges: bool,
    /// System call filter.
    pub seccomp: Seccomp,
    /// Paths of /proc and /sys that the container does not see.
    pub masked_paths: Vec<String>,
    /// Paths of /proc and /sys that it cannot write.
    pub readonly_paths: Vec<String>,
}

/// An image's user, as far as the runtime knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Numeric.
    pub uid: Option<i64>,
    /// By name.
    pub name: String,
}

/// The container would run as root, or nobody can tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NonRootError {
    /// `runAsUser: 0`.
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    SpecSaysRoot {
        /// `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
    /// The image's user is root.
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})"
    )]
    ImageIsRoot {
        /// `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
    /// The image names its user.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    Named {
        /// The image's user.
        user: String,
        /// `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
}

/// The default of the container runtimes (OCI runtime tools; the same list as in
/// containerd and CRI-O), needed because an empty list means "hide nothing".
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The groups of all processes of a pod: `supplementalGroups` and `fsGroup`.
pub fn groups(pod: &Pod) -> Vec<i64> {
    let context = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let mut groups = context
        .and_then(|c| c.supplemental_groups.clone())
        .unwrap_or_default();
    groups.extend(context.and_then(|c| c.fs_group));
    groups.dedup();
    groups
}

/// The user a container runs as, where the spec says so.
pub fn run_as_user(pod: &Pod, container: &Container) -> Option<i64> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|c| c.run_as_user);
    own.or_else(|| pod.spec.as_ref()?.security_context.as_ref()?.run_as_user)
}

/// What `container` may do.
pub fn config(pod: &Pod, container: &Container) -> SecurityConfig {
    let of_pod = pod.spec.as_ref().and_then(|s| s.security_context.as_ref());
    let own = container.security_context.clone().unwrap_or_default();
    let capabilities = own.capabilities.unwrap_or_default();
    let privileged = own.privileged == Some(true);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| {
        if unmasked {
            Vec::new()
        } else {
            list.iter().map(|p| (*p).to_owned()).collect()
        }
    };
    let profile = own
        .seccomp_profile
        .as_ref()
        .or_else(|| of_pod.and_then(|c| c.seccomp_profile.as_ref()));
    SecurityConfig {
        privileged,
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        run_as_user: run_as_user(pod, container),
        run_as_group: own
            .run_as_group
            .or_else(|| of_pod.and_then(|c| c.run_as_group)),
        supplemental_groups: groups(pod),
        read_only_root: own.read_only_root_filesystem == Some(true),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        seccomp: seccomp(profile, privileged),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READONLY),
    }
}

fn seccomp(profile: Option<&SeccompProfile>, privileged: bool) -> Seccomp {
    match profile.map(|p| p.type_.as_str()) {
        Some("RuntimeDefault") if !privileged => Seccomp::RuntimeDefault,
        _ => Seccomp::Unconfined,
    }
}

/// Checks `runAsNonRoot` against spec and image.
pub fn check_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), NonRootError> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|c| c.run_as_non_root);
    let wanted = own.or_else(|| {
        pod.spec
            .as_ref()?
            .security_context
            .as_ref()?
            .run_as_non_root
    });
    if wanted != Some(true) {
        return Ok(());
    }
    let (pod_name, container_name) = (spec::full_name(pod), container.name.clone());
    match (run_as_user(pod, container), image.uid) {
        (Some(0), _) => Err(NonRootError::SpecSaysRoot {
            pod: pod_name,
            container: container_name,
        }),
        (Some(_), _) | (None, Some(1..)) => Ok(()),
        (None, Some(_)) => Err(NonRootError::ImageIsRoot {
            pod: pod_name,
            container: container_name,
        }),
        (None, None) if image.name.is_empty() => Err(NonRootError::ImageIsRoot {
            pod: pod_name,
            container: container_name,
        }),
        (None, None) => Err(NonRootError::Named {
            user: image.name.clone(),
            pod: pod_name,
            container: container_name,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(pod_context: serde_json::Value, own: serde_json::Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": pod_context, "containers": [
                {"name": "c", "securityContext": own}]}}),
        )
        .unwrap()
    }

    fn of(pod_context: serde_json::Value, own: serde_json::Value) -> SecurityConfig {
        let pod = pod(pod_context, own);
        config(&pod, &spec::containers(&pod)[0])
    }

    #[test]
    fn container_wins_over_pod() {
        let config = of(
            json!({"runAsUser": 1, "runAsGroup": 2, "fsGroup": 7, "supplementalGroups": [5],
                "seccompProfile": {"type": "RuntimeDefault"}}),
            json!({"runAsUser": 3, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}),
        );
        assert_eq!(
            (config.run_as_user, config.run_as_group),
            (Some(3), Some(2))
        );
        assert_eq!(config.supplemental_groups, [5, 7]);
        assert!(config.read_only_root && config.no_new_privileges && !config.privileged);
        assert_eq!(config.seccomp, Seccomp::RuntimeDefault);
        assert_eq!(
            (config.add_capabilities, config.drop_capabilities),
            (vec!["NET_ADMIN".into()], vec!["ALL".into()])
        );
        assert!(config.masked_paths.contains(&"/proc/kcore".to_owned()));
    }

    #[test]
    fn privileged_sees_everything() {
        let config = of(json!({}), json!({"privileged": true}));
        assert!(config.privileged && config.masked_paths.is_empty());
        assert_eq!(config.seccomp, Seccomp::Unconfined);
        assert!(!config.no_new_privileges);
    }

    #[test]
    fn non_root() {
        let image = |uid: Option<i64>, name: &str| ImageUser {
            uid,
            name: name.into(),
        };
        let check = |user: Option<i64>, image: ImageUser| {
            let pod = pod(json!({"runAsNonRoot": true}), json!({"runAsUser": user}));
            check_non_root(&pod, &spec::containers(&pod)[0], &image)
                .err()
                .map(|e| e.to_string())
        };
        assert_eq!(check(Some(5), image(Some(0), "")), None);
        assert_eq!(check(None, image(Some(5), "")), None);
        for (user, image, want) in [
            (Some(0), image(Some(5), ""), "breaks non-root policy"),
            (None, image(Some(0), ""), "will run as root"),
            (None, image(None, ""), "will run as root"),
            (None, image(None, "www"), "non-numeric user (www)"),
        ] {
            let error = check(user, image).unwrap();
            assert!(error.contains(want), "{error}");
        }
    }
}
