//! One container.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, PodSpec};

use super::names::{is_env_name, is_port_name};
use super::{Found, probe, resources};

pub(super) fn container(path: &str, container: &Container, spec: &PodSpec, found: &mut Found) {
    found.dns_label(format!("{path}.name"), &container.name);
    if container.image.as_deref().unwrap_or_default().is_empty() {
        found.add(format!("{path}.image"), "required");
    }
    let rows: [(_, _, &[&str]); 2] = [
        (
            "imagePullPolicy",
            container.image_pull_policy.as_ref(),
            &["Always", "IfNotPresent", "Never"],
        ),
        (
            "terminationMessagePolicy",
            container.termination_message_policy.as_ref(),
            &["File", "FallbackToLogsOnError"],
        ),
    ];
    for (field, value, known) in rows {
        found.one_of(format!("{path}.{field}"), value, known);
    }
    ports(path, container, spec.host_network == Some(true), found);
    environment(path, container, found);
    mounts(path, container, spec, found);
    resources::resources(path, container, found);
    probe::probes(path, container, found);
}

/// A port of the node leads to one place.
pub(super) fn host_ports(spec: &PodSpec, found: &mut Found) {
    let mut taken = BTreeSet::new();
    for (number, container) in spec.containers.iter().enumerate() {
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let Some(host_port) = port.host_port.filter(|port| *port != 0) else {
                continue;
            };
            let protocol = port.protocol.as_deref().filter(|name| !name.is_empty());
            let ip = port.host_ip.as_deref().unwrap_or_default();
            if !taken.insert((host_port, protocol.unwrap_or("TCP"), ip)) {
                let path = format!("spec.containers[{number}].ports[{index}].hostPort");
                found.add(path, format!("{host_port} is there twice"));
            }
        }
    }
}

fn ports(path: &str, container: &Container, host_network: bool, found: &mut Found) {
    let mut names = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let at = |field: &str| format!("{path}.ports[{index}].{field}");
        found.port(at("containerPort"), port.container_port);
        if let Some(host_port) = port.host_port.filter(|port| *port != 0) {
            found.port(at("hostPort"), host_port);
            let ip = port.host_ip.as_deref().unwrap_or_default();
            if !ip.is_empty() && ip.parse::<IpAddr>().is_err() {
                found.add(at("hostIP"), format!("{ip:?} is not an IP address"));
            }
            if host_network && host_port != port.container_port {
                let message = "on the node's network it must be the containerPort";
                found.add(at("hostPort"), message);
            }
        }
        let protocols = ["TCP", "UDP", "SCTP"];
        found.one_of(at("protocol"), port.protocol.as_ref(), &protocols);
        if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
            if !is_port_name(name) {
                found.add(at("name"), format!("{name:?} is not a port's name"));
            } else if !names.insert(name) {
                found.add(at("name"), format!("{name:?} is there twice"));
            }
        }
    }
}

fn environment(path: &str, container: &Container, found: &mut Found) {
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let at = |field: &str| format!("{path}.env[{index}].{field}");
        if variable.name.is_empty() {
            found.add(at("name"), "required");
        } else if !is_env_name(&variable.name) {
            let message = format!("{:?} is not a variable's name", variable.name);
            found.add(at("name"), message);
        }
        let Some(from) = &variable.value_from else {
            continue;
        };
        if variable.value.as_ref().is_some_and(|v| !v.is_empty()) {
            found.add(at("valueFrom"), "not together with value");
        }
        if sources(from) != 1 {
            found.add(at("valueFrom"), "exactly one source is required");
        }
    }
    for (index, from) in container.env_from.iter().flatten().enumerate() {
        if from.config_map_ref.is_some() == from.secret_ref.is_some() {
            let message = "exactly one of configMapRef and secretRef is required";
            found.add(format!("{path}.envFrom[{index}]"), message);
        }
    }
}

fn sources(from: &EnvVarSource) -> usize {
    [
        from.config_map_key_ref.is_some(),
        from.field_ref.is_some(),
        from.file_key_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.secret_key_ref.is_some(),
    ]
    .into_iter()
    .filter(|is_set| *is_set)
    .count()
}

fn mounts(path: &str, container: &Container, spec: &PodSpec, found: &mut Found) {
    let volumes: BTreeSet<_> = spec.volumes.iter().flatten().map(|v| &v.name).collect();
    let mut targets = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let at = |field: &str| format!("{path}.volumeMounts[{index}].{field}");
        if !volumes.contains(&mount.name) {
            found.add(at("name"), format!("no volume is named {:?}", mount.name));
        }
        let target = &mount.mount_path;
        if target.is_empty() {
            found.add(at("mountPath"), "required");
        } else if target.contains(':') {
            found.add(at("mountPath"), format!("{target:?} has a colon"));
        } else if !targets.insert(target) {
            found.add(at("mountPath"), format!("{target:?} is there twice"));
        }
        let known = ["None", "HostToContainer", "Bidirectional"];
        let propagation = mount.mount_propagation.as_ref();
        found.one_of(at("mountPropagation"), propagation, &known);
    }
}
