//! What an API server would refuse, as far as the node cares.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service, ServicePort, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::config::{is_dns_label, is_dns_subdomain};

/// Field path, and what is wrong there.
pub(super) type Check = Result<(), (String, String)>;

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Check {
    Err((field.into(), problem.into()))
}

pub(super) fn metadata(metadata: &ObjectMeta) -> Check {
    let name = metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        return wrong("metadata.name", "required");
    }
    if !is_dns_subdomain(name) {
        return wrong("metadata.name", format!("{name:?} is not a DNS subdomain"));
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    if !is_dns_label(namespace) {
        return wrong(
            "metadata.namespace",
            format!("{namespace:?} is not a DNS label"),
        );
    }
    Ok(())
}

pub(super) fn pod(pod: &Pod) -> Check {
    let Some(spec) = &pod.spec else {
        return wrong("spec", "required");
    };
    if spec.containers.is_empty() {
        return wrong("spec.containers", "at least one is required");
    }
    let policy = spec.restart_policy.as_deref().unwrap_or_default();
    if !["Always", "OnFailure", "Never"].contains(&policy) {
        return wrong(
            "spec.restartPolicy",
            format!("{policy:?} is none of Always, OnFailure, Never"),
        );
    }
    volumes(spec)?;
    let mut names = BTreeSet::new();
    for (index, item) in spec.init_containers.iter().flatten().enumerate() {
        container(
            &format!("spec.initContainers[{index}]"),
            item,
            spec,
            &mut names,
        )?;
    }
    for (index, item) in spec.containers.iter().enumerate() {
        container(&format!("spec.containers[{index}]"), item, spec, &mut names)?;
    }
    Ok(())
}

fn volumes(spec: &PodSpec) -> Check {
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = format!("spec.volumes[{index}]");
        if !is_dns_label(&volume.name) {
            return wrong(
                format!("{field}.name"),
                format!("{:?} is not a DNS label", volume.name),
            );
        }
        if !names.insert(&volume.name) {
            return wrong(
                format!("{field}.name"),
                format!("{:?} is there twice", volume.name),
            );
        }
        no_token(&field, volume)?;
    }
    Ok(())
}

/// Nobody here issues tokens; a pod that waits for one would wait for ever.
fn no_token(field: &str, volume: &Volume) -> Check {
    let projected = volume
        .projected
        .as_ref()
        .and_then(|projected| projected.sources.as_ref());
    for (index, source) in projected.into_iter().flatten().enumerate() {
        if source.service_account_token.is_some() {
            return wrong(
                format!("{field}.projected.sources[{index}].serviceAccountToken"),
                "there are no service accounts without an API server",
            );
        }
    }
    Ok(())
}

fn container<'a>(
    field: &str,
    container: &'a Container,
    spec: &PodSpec,
    names: &mut BTreeSet<&'a str>,
) -> Check {
    let name = container.name.as_str();
    if !is_dns_label(name) {
        return wrong(
            format!("{field}.name"),
            format!("{name:?} is not a DNS label"),
        );
    }
    if !names.insert(name) {
        return wrong(format!("{field}.name"), format!("{name:?} is there twice"));
    }
    if container.image.as_deref().unwrap_or_default().is_empty() {
        return wrong(format!("{field}.image"), "required");
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        port_number(
            &format!("{field}.ports[{index}].containerPort"),
            port.container_port,
        )?;
        if let Some(host_port) = port.host_port {
            port_number(&format!("{field}.ports[{index}].hostPort"), host_port)?;
        }
    }
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let field = format!("{field}.volumeMounts[{index}]");
        if !spec
            .volumes
            .iter()
            .flatten()
            .any(|volume| volume.name == mount.name)
        {
            return wrong(
                format!("{field}.name"),
                format!("no volume is named {:?}", mount.name),
            );
        }
        if mount.mount_path.is_empty() {
            return wrong(format!("{field}.mountPath"), "required");
        }
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() {
            return wrong(format!("{field}.env[{index}].name"), "required");
        }
    }
    Ok(())
}

fn port_number(field: &str, port: i32) -> Check {
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    wrong(field, format!("{port} is not between 1 and 65535"))
}

pub(super) fn service(service: &Service) -> Check {
    let Some(spec) = &service.spec else {
        return wrong("spec", "required");
    };
    let kind = spec.type_.as_deref().unwrap_or_default();
    if kind != "ClusterIP" {
        return wrong(
            "spec.type",
            format!("{kind:?} is not supported, only ClusterIP is"),
        );
    }
    if spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty())
    {
        return wrong("spec.externalIPs", "not supported");
    }
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() && spec.cluster_ip.as_deref() != Some("None") {
        return wrong("spec.ports", "at least one is required");
    }
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        service_port(&field, port)?;
        let name = port.name.as_deref().unwrap_or_default();
        if ports.len() > 1 && name.is_empty() {
            return wrong(
                format!("{field}.name"),
                "required where there are several ports",
            );
        }
        if !names.insert(name) {
            return wrong(format!("{field}.name"), format!("{name:?} is there twice"));
        }
        if !numbers.insert((port.port, port.protocol.as_deref())) {
            return wrong(
                format!("{field}.port"),
                format!("{} is there twice", port.port),
            );
        }
    }
    Ok(())
}

fn service_port(field: &str, port: &ServicePort) -> Check {
    port_number(&format!("{field}.port"), port.port)?;
    if let Some(IntOrString::Int(target)) = port.target_port {
        port_number(&format!("{field}.targetPort"), target)?;
    }
    if port.node_port.is_some() {
        return wrong(format!("{field}.nodePort"), "not supported");
    }
    match port.protocol.as_deref() {
        Some("TCP" | "UDP") => Ok(()),
        other => wrong(
            format!("{field}.protocol"),
            format!("{:?} is none of TCP, UDP", other.unwrap_or_default()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::parse;

    fn pod(spec: &str) -> String {
        format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}}}")
    }

    fn service(spec: &str) -> String {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{{spec}}}}}")
    }

    #[track_caller]
    fn check(text: &str, want: &str) {
        let error = parse(text).expect_err("accepted").to_string();
        assert!(error.contains(want), "{error} does not contain {want}");
    }

    #[test]
    fn pods_that_are_refused() {
        let rows = [
            ("containers: []", "spec.containers: at least one"),
            (
                "containers: [{image: i}]",
                "spec.containers[0].name: \"\" is not a DNS label",
            ),
            (
                "containers: [{name: a}]",
                "spec.containers[0].image: required",
            ),
            (
                "containers: [{name: a, image: i}, {name: a, image: i}]",
                "spec.containers[1].name: \"a\" is there twice",
            ),
            (
                "restartPolicy: Sometimes, containers: [{name: a, image: i}]",
                "spec.restartPolicy: \"Sometimes\"",
            ),
            (
                "containers: [{name: a, image: i, ports: [{containerPort: 70000}]}]",
                "spec.containers[0].ports[0].containerPort: 70000",
            ),
            (
                "containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /v}]}]",
                "spec.containers[0].volumeMounts[0].name: no volume is named \"v\"",
            ),
            (
                "volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: t}}]}}], \
                 containers: [{name: a, image: i}]",
                "spec.volumes[0].projected.sources[0].serviceAccountToken: there are no service",
            ),
        ];
        for (spec, want) in rows {
            check(&pod(spec), want);
        }
    }

    #[test]
    fn services_that_are_refused() {
        let rows = [
            (
                "type: NodePort, ports: [{port: 80}]",
                "spec.type: \"NodePort\"",
            ),
            ("ports: []", "spec.ports: at least one"),
            ("ports: [{port: 0}]", "spec.ports[0].port: 0"),
            (
                "ports: [{port: 80}, {port: 81}]",
                "spec.ports[0].name: required",
            ),
            (
                "ports: [{port: 80, protocol: SCTP}]",
                "spec.ports[0].protocol: \"SCTP\"",
            ),
            (
                "ports: [{name: a, port: 80}, {name: b, port: 80}]",
                "spec.ports[1].port: 80 is there twice",
            ),
        ];
        for (spec, want) in rows {
            check(&service(spec), want);
        }
    }
}
