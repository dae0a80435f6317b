//! Probes.

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Found;
use super::names::is_port_name;
use crate::probe::{self, ProbeKind};

pub(super) fn probes(path: &str, container: &Container, found: &mut Found) {
    for (kind, probe) in probe::probes(container) {
        let path = format!("{path}.{}Probe", kind.name());
        numbers(&path, kind, probe, found);
        action(&path, probe, found);
    }
}

/// Ports by a name that the container does not give to any of its ports.
pub(super) fn named_ports(path: &str, container: &Container, found: &mut Found) {
    for (kind, probe) in probe::probes(container) {
        for (field, port) in ports(probe) {
            if let IntOrString::String(name) = port
                && probe::port(container, port).is_none()
            {
                let path = format!("{path}.{}Probe.{field}.port", kind.name());
                found.add(path, format!("no port of the container is named {name:?}"));
            }
        }
    }
}

fn numbers(path: &str, kind: ProbeKind, probe: &Probe, found: &mut Found) {
    for (field, value, least) in [
        ("initialDelaySeconds", probe.initial_delay_seconds, 0),
        ("timeoutSeconds", probe.timeout_seconds, 1),
        ("periodSeconds", probe.period_seconds, 1),
        ("successThreshold", probe.success_threshold, 1),
        ("failureThreshold", probe.failure_threshold, 1),
    ] {
        if let Some(value) = value.filter(|value| *value < least) {
            let message = format!("{value} is less than {least}");
            found.add(format!("{path}.{field}"), message);
        }
    }
    let successes = probe.success_threshold.unwrap_or(1);
    if kind != ProbeKind::Readiness && successes > 1 {
        let message = format!("{successes} is not 1, as it must be here");
        found.add(format!("{path}.successThreshold"), message);
    }
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let path = format!("{path}.terminationGracePeriodSeconds");
        if kind == ProbeKind::Readiness {
            found.add(path, "not for a readiness probe");
        } else if seconds < 1 {
            found.add(path, format!("{seconds} is less than 1"));
        }
    }
}

fn action(path: &str, probe: &Probe, found: &mut Found) {
    let actions = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    if actions.into_iter().filter(|is_set| *is_set).count() != 1 {
        let message = "exactly one of exec, httpGet, tcpSocket and grpc is required";
        found.add(path, message);
    }
    if let Some(exec) = &probe.exec
        && exec.command.as_ref().is_none_or(Vec::is_empty)
    {
        found.add(format!("{path}.exec.command"), "required");
    }
    if let Some(http) = &probe.http_get {
        let path = format!("{path}.httpGet.scheme");
        found.one_of(path, http.scheme.as_ref(), &["HTTP", "HTTPS"]);
    }
    for (field, port) in ports(probe) {
        let path = format!("{path}.{field}.port");
        match port {
            IntOrString::Int(number) => found.port(path, *number),
            IntOrString::String(name) if !is_port_name(name) => {
                found.add(path, format!("{name:?} is not a port's name"));
            }
            IntOrString::String(_) => {}
        }
    }
}

fn ports(probe: &Probe) -> impl Iterator<Item = (&'static str, &IntOrString)> {
    let http = probe.http_get.as_ref().map(|http| ("httpGet", &http.port));
    let tcp = probe.tcp_socket.as_ref();
    http.into_iter()
        .chain(tcp.map(|tcp| ("tcpSocket", &tcp.port)))
}
