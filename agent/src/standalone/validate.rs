//! What is refused in a directory: what an API server would refuse, and what wants one.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServicePort, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use seaway_agent_core::validate::{self, FieldError};

/// Field path, and what is wrong there.
pub(super) type Check = Result<(), (String, String)>;

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Check {
    Err((field.into(), problem.into()))
}

/// The first is the one that is told.
fn none(found: Vec<FieldError>) -> Check {
    match found.into_iter().next() {
        None => Ok(()),
        Some(error) => wrong(error.path, error.message),
    }
}

pub(super) fn metadata(metadata: &ObjectMeta) -> Check {
    none(validate::metadata(metadata))
}

pub(super) fn pod(pod: &Pod) -> Check {
    none(validate::pod(pod))?;
    none(validate::ineffective(pod))?;
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    for (index, volume) in volumes.into_iter().flatten().enumerate() {
        no_token(&format!("spec.volumes[{index}]"), volume)?;
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

pub(super) fn config_map(config_map: &ConfigMap) -> Check {
    none(validate::config_map(config_map))
}

pub(super) fn secret(secret: &Secret) -> Check {
    none(validate::secret(secret))
}

pub(super) fn service(service: &Service) -> Check {
    none(validate::service(service))?;
    let Some(spec) = &service.spec else {
        return Ok(());
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
    let ports = spec.ports.iter().flatten().enumerate();
    for (index, port) in ports {
        service_port(&format!("spec.ports[{index}]"), port)?;
    }
    Ok(())
}

fn service_port(field: &str, port: &ServicePort) -> Check {
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
                "containers: [{name: a, image: i, resources: {limits: {cpu: abc}}}]",
                "spec.containers[0].resources.limits[cpu]: \"abc\" is not a quantity",
            ),
            (
                "terminationGracePeriodSeconds: -1, containers: [{name: a, image: i}]",
                "spec.terminationGracePeriodSeconds: -1 is negative",
            ),
            (
                "containers: [{name: a, image: i, livenessProbe: {periodSeconds: 0}}]",
                "spec.containers[0].livenessProbe.periodSeconds: 0 is less than 1",
            ),
            (
                "containers: [{name: a, image: i, env: [{name: A=B}]}]",
                "spec.containers[0].env[0].name: \"A=B\"",
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
            (
                "clusterIP: 10.0.0, ports: [{port: 80}]",
                "spec.clusterIP: \"10.0.0\" is neither",
            ),
        ];
        for (spec, want) in rows {
            check(&service(spec), want);
        }
    }

    #[test]
    fn keys_that_are_refused() {
        let data = |kind: &str, rest: &str| {
            format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: d}}, {rest}}}")
        };
        for (kind, field) in [
            ("ConfigMap", "data"),
            ("ConfigMap", "binaryData"),
            ("Secret", "data"),
            ("Secret", "stringData"),
        ] {
            let text = data(kind, &format!("{field}: {{../../x: YQ==}}"));
            check(&text, &format!("{kind} default/d: {field}[../../x]: a key"));
        }
    }
}
