//! What the API server fills in before a node sees an object
//! (`pkg/apis/core/v1/defaults.go`).

use k8s_openapi::api::core::v1::{
    Container, Pod, PodSecurityContext, PodSpec, Probe, Service, Volume,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `0644`
const FILE_MODE: i32 = 0o644;

pub(super) fn pod(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context
        .get_or_insert_with(PodSecurityContext::default);
    for item in spec.volumes.iter_mut().flatten() {
        volume(item);
    }
    let host_network = spec.host_network == Some(true);
    let PodSpec {
        containers,
        init_containers,
        ..
    } = spec;
    for item in containers
        .iter_mut()
        .chain(init_containers.iter_mut().flatten())
    {
        container(item, host_network);
    }
}

fn text(field: &mut Option<String>, default: &str) {
    field.get_or_insert_with(|| default.to_owned());
}

fn volume(volume: &mut Volume) {
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.host_path {
        text(&mut source.type_, "");
    }
}

fn container(container: &mut Container, host_network: bool) {
    let image = container.image.clone().unwrap_or_default();
    text(&mut container.image_pull_policy, pull_policy(&image));
    text(
        &mut container.termination_message_path,
        "/dev/termination-log",
    );
    text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        if host_network {
            port.host_port.get_or_insert(port.container_port);
        }
    }
    if let Some(resources) = &mut container.resources
        && let Some(limits) = resources.limits.clone()
    {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for item in probes.into_iter().flatten() {
        probe(item);
    }
    for variable in container.env.iter_mut().flatten() {
        let source = variable.value_from.as_mut();
        if let Some(field) = source.and_then(|source| source.field_ref.as_mut()) {
            text(&mut field.api_version, "v1");
        }
    }
}

fn probe(probe: &mut Probe) {
    probe.timeout_seconds.get_or_insert(1);
    probe.period_seconds.get_or_insert(10);
    probe.success_threshold.get_or_insert(1);
    probe.failure_threshold.get_or_insert(3);
    if let Some(http) = &mut probe.http_get {
        text(&mut http.path, "/");
        text(&mut http.scheme, "HTTP");
    }
}

/// Images without a tag, or with `latest`, may change behind their name.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or(image);
    let latest = name
        .split_once(':')
        .is_none_or(|(_name, tag)| tag == "latest");
    if latest && !image.contains('@') {
        "Always"
    } else {
        "IfNotPresent"
    }
}

pub(super) fn service(service: &mut Service) {
    let Some(spec) = &mut service.spec else {
        return;
    };
    text(&mut spec.type_, "ClusterIP");
    text(&mut spec.session_affinity, "None");
    text(&mut spec.internal_traffic_policy, "Cluster");
    text(&mut spec.ip_family_policy, "SingleStack");
    spec.ip_families
        .get_or_insert_with(|| vec!["IPv4".to_owned()]);
    for port in spec.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        port.target_port.get_or_insert(IntOrString::Int(port.port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_by_tag() {
        let rows = [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("busybox:1.37", "IfNotPresent"),
            ("localhost:5000/busybox", "Always"),
            ("localhost:5000/busybox:1", "IfNotPresent"),
            ("busybox@sha256:00", "IfNotPresent"),
        ];
        for (image, want) in rows {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }

    #[test]
    fn pods_get_what_the_api_server_gives_them() {
        let mut made: Pod = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{
                "name": "a", "image": "i:1",
                "ports": [{"containerPort": 80}],
                "readinessProbe": {"httpGet": {"port": 80}},
                "resources": {"limits": {"cpu": "1"}},
            }]},
        }))
        .unwrap();
        pod(&mut made);
        let spec = made.spec.unwrap();
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        let container = &spec.containers[0];
        assert_eq!(
            container.ports.as_ref().unwrap()[0].protocol.as_deref(),
            Some("TCP")
        );
        let probe = container.readiness_probe.as_ref().unwrap();
        assert_eq!(
            (probe.period_seconds, probe.failure_threshold),
            (Some(10), Some(3))
        );
        assert_eq!(
            probe.http_get.as_ref().unwrap().scheme.as_deref(),
            Some("HTTP")
        );
        let resources = container.resources.as_ref().unwrap();
        assert_eq!(resources.requests, resources.limits);
    }
}
