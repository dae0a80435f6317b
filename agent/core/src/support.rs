//! What a pod may not ask for yet.
//!
//! A pod that asks for something on this list is rejected, with the field in the
//! message, and never run without it. Everything that the API knows and that is
//! not on this list is either done or without effect on a node.

mod container;

use k8s_openapi::api::core::v1::{Pod, PodSecurityContext, PodSpec, Volume};

use crate::spec;

/// Paths of the fields that this agent does not support, in spec order.
pub fn unsupported(pod: &Pod) -> Vec<String> {
    let mut found = Vec::new();
    let Some(pod_spec) = pod.spec.as_ref() else {
        return found;
    };
    pod_fields(pod_spec, &mut found);
    if let Some(context) = &pod_spec.security_context {
        pod_security(context, &mut found);
    }
    for volume in pod_spec.volumes.iter().flatten() {
        if let Some(kind) = volume_kind(volume) {
            found.push(format!("spec.volumes[{}].{kind}", volume.name));
        }
    }
    for container in spec::init_containers(pod) {
        let path = format!("spec.initContainers[{}]", container.name);
        container::fields(container, &path, &mut found);
    }
    for container in spec::containers(pod) {
        let path = format!("spec.containers[{}]", container.name);
        container::fields(container, &path, &mut found);
    }
    found
}

fn pod_fields(pod: &PodSpec, found: &mut Vec<String>) {
    let rows = [
        (
            pod.ephemeral_containers
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
            "ephemeralContainers",
        ),
        (
            pod.resource_claims
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
            "resourceClaims",
        ),
        (pod.host_users == Some(false), "hostUsers: false"),
        (
            pod.runtime_class_name
                .as_ref()
                .is_some_and(|name| !name.is_empty()),
            "runtimeClassName",
        ),
        (pod.resources.is_some(), "resources"),
        (pod.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN"),
        (
            pod.os.as_ref().is_some_and(|os| os.name != "linux"),
            "os.name",
        ),
    ];
    found.extend(
        rows.iter()
            .filter(|(set, _)| *set)
            .map(|(_, field)| format!("spec.{field}")),
    );
}

fn pod_security(context: &PodSecurityContext, found: &mut Vec<String>) {
    let localhost = context
        .seccomp_profile
        .as_ref()
        .is_some_and(|p| p.type_ == "Localhost");
    let armor = context
        .app_armor_profile
        .as_ref()
        .is_some_and(|p| p.type_ != "Unconfined");
    let strict = context.supplemental_groups_policy.as_deref() == Some("Strict");
    let rows = [
        (
            context
                .sysctls
                .as_ref()
                .is_some_and(|list| !list.is_empty()),
            "sysctls",
        ),
        (context.se_linux_options.is_some(), "seLinuxOptions"),
        (context.windows_options.is_some(), "windowsOptions"),
        (localhost, "seccompProfile: Localhost"),
        (armor, "appArmorProfile"),
        (strict, "supplementalGroupsPolicy: Strict"),
    ];
    let set = rows.iter().filter(|(set, _)| *set);
    found.extend(set.map(|(_, field)| format!("spec.securityContext.{field}")));
}

/// The API's name of a volume's kind, if it is not supported.
fn volume_kind(volume: &Volume) -> Option<String> {
    if let Some(projected) = &volume.projected {
        let sources = projected.sources.as_deref().unwrap_or_default();
        if sources.iter().any(|s| s.cluster_trust_bundle.is_some()) {
            return Some("projected.clusterTrustBundle".into());
        }
        if sources.iter().any(|s| s.pod_certificate.is_some()) {
            return Some("projected.podCertificate".into());
        }
    }
    if let Some(empty_dir) = &volume.empty_dir {
        let medium = empty_dir.medium.as_deref().unwrap_or_default();
        return medium
            .starts_with("HugePages")
            .then(|| "emptyDir.medium: HugePages".into());
    }
    let supported = volume.host_path.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some();
    if supported {
        return None;
    }
    // Everything else, by its name in the API: also kinds that are newer than this.
    let value = serde_json::to_value(volume).ok()?;
    let kind = value
        .as_object()?
        .keys()
        .find(|key| *key != "name")
        .cloned();
    // A volume without a kind is an emptyDir.
    kind
}

#[cfg(test)]
mod tests;
