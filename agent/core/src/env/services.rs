//! The variables that tell of Services (`enableServiceLinks`), in the form that
//! container links had: `WEB_SERVICE_HOST`, `WEB_PORT_80_TCP_ADDR`.

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

use crate::spec;

/// Variables of the Services that the pod sees, by name.
pub(super) fn variables(pod: &Pod, services: &[Service]) -> Vec<(String, String)> {
    let links = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.enable_service_links)
        .unwrap_or(true);
    let mut visible: Vec<&Service> = services
        .iter()
        .filter(|service| {
            let namespace = service.metadata.namespace.as_deref().unwrap_or("default");
            let name = service.metadata.name.as_deref().unwrap_or_default();
            let is_master = namespace == "default" && name == "kubernetes";
            is_master || (links && namespace == spec::namespace(pod))
        })
        .collect();
    // A Service of the pod's own namespace hides default/kubernetes of that name.
    visible.sort_by_key(|service| {
        let own = service.metadata.namespace.as_deref() == Some(spec::namespace(pod));
        (own, service.metadata.name.clone())
    });
    let mut vars: Vec<(String, String)> = Vec::new();
    for (name, value) in visible.into_iter().flat_map(of_service) {
        match vars.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = value,
            None => vars.push((name, value)),
        }
    }
    vars
}

fn of_service(service: &Service) -> Vec<(String, String)> {
    let service_spec = service.spec.as_ref();
    let ip = service_spec
        .and_then(|s| s.cluster_ip.as_deref())
        .unwrap_or_default();
    let ports = service_spec
        .and_then(|s| s.ports.as_deref())
        .unwrap_or_default();
    let (Some(first), false) = (ports.first(), ip.is_empty() || ip == "None") else {
        return Vec::new();
    };
    let prefix = variable(service.metadata.name.as_deref().unwrap_or_default());
    let mut vars = vec![
        (format!("{prefix}_SERVICE_HOST"), ip.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = format!("{prefix}_SERVICE_PORT_{}", variable(name));
            vars.push((name, port.port.to_string()));
        }
    }
    vars.push((format!("{prefix}_PORT"), url(ip, first)));
    for port in ports {
        let protocol = protocol(port);
        let link = format!("{prefix}_PORT_{}_{protocol}", port.port);
        vars.push((link.clone(), url(ip, port)));
        vars.push((format!("{link}_PROTO"), protocol.to_lowercase()));
        vars.push((format!("{link}_PORT"), port.port.to_string()));
        vars.push((format!("{link}_ADDR"), ip.to_owned()));
    }
    vars
}

fn protocol(port: &ServicePort) -> String {
    port.protocol.as_deref().unwrap_or("TCP").to_uppercase()
}

fn url(ip: &str, port: &ServicePort) -> String {
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    format!("{}://{host}:{}", protocol(port).to_lowercase(), port.port)
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace(['-', '.'], "_")
}
