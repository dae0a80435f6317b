//! The same for one container.

use k8s_openapi::api::core::v1::{Container, EnvVar, Probe, SecurityContext};

pub(super) fn fields(container: &Container, path: &str, found: &mut Vec<String>) {
    let mut add = |set: bool, field: &str| {
        if set {
            found.push(format!("{path}.{field}"));
        }
    };
    add(container.lifecycle.is_some(), "lifecycle");
    add(
        container
            .volume_devices
            .as_ref()
            .is_some_and(|list| !list.is_empty()),
        "volumeDevices",
    );
    let rules = container
        .restart_policy_rules
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    add(rules, "restartPolicyRules");
    // Always on an init container makes it a sidecar.
    add(container.restart_policy.is_some(), "restartPolicy");
    let resources = container.resources.as_ref();
    let claims = resources
        .and_then(|r| r.claims.as_ref())
        .is_some_and(|list| !list.is_empty());
    add(claims, "resources.claims");
    let huge = resources
        .into_iter()
        .flat_map(|r| [&r.limits, &r.requests])
        .flatten()
        .any(|list| list.keys().any(|key| key.starts_with("hugepages-")));
    add(huge, "resources: hugepages");
    // Devices and what else others count; none of it can be handed out here.
    for (field, list) in [
        ("limits", resources.and_then(|r| r.limits.as_ref())),
        ("requests", resources.and_then(|r| r.requests.as_ref())),
    ] {
        for name in list.into_iter().flat_map(|list| list.keys()) {
            add(name.contains('/'), &format!("resources.{field}[{name}]"));
        }
    }
    for mount in container.volume_mounts.iter().flatten() {
        let field = |name: &str| format!("volumeMounts[{}].{name}", mount.mount_path);
        add(
            mount.sub_path.as_ref().is_some_and(|p| !p.is_empty()),
            &field("subPath"),
        );
        add(
            mount.sub_path_expr.as_ref().is_some_and(|p| !p.is_empty()),
            &field("subPathExpr"),
        );
        let recursive = mount.recursive_read_only.as_deref();
        add(
            recursive == Some("Enabled"),
            &field("recursiveReadOnly: Enabled"),
        );
    }
    for env in container.env.iter().flatten() {
        add(
            has_file_key(env),
            &format!("env[{}].valueFrom.fileKeyRef", env.name),
        );
    }
    add(
        unsupported_probe(container.liveness_probe.as_ref()),
        "livenessProbe.grpc",
    );
    add(
        unsupported_probe(container.readiness_probe.as_ref()),
        "readinessProbe.grpc",
    );
    add(
        unsupported_probe(container.startup_probe.as_ref()),
        "startupProbe.grpc",
    );
    if let Some(context) = &container.security_context {
        security(context, &mut add);
    }
}

fn has_file_key(env: &EnvVar) -> bool {
    env.value_from
        .as_ref()
        .is_some_and(|from| from.file_key_ref.is_some())
}

fn unsupported_probe(probe: Option<&Probe>) -> bool {
    probe.is_some_and(|probe| probe.grpc.is_some())
}

fn security(context: &SecurityContext, add: &mut impl FnMut(bool, &str)) {
    let localhost = context
        .seccomp_profile
        .as_ref()
        .is_some_and(|p| p.type_ == "Localhost");
    let armor = context
        .app_armor_profile
        .as_ref()
        .is_some_and(|p| p.type_ != "Unconfined");
    add(
        context.se_linux_options.is_some(),
        "securityContext.seLinuxOptions",
    );
    add(
        context.windows_options.is_some(),
        "securityContext.windowsOptions",
    );
    add(localhost, "securityContext.seccompProfile: Localhost");
    add(armor, "securityContext.appArmorProfile");
}
