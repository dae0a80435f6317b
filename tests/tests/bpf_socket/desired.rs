//! Desired states in few words.

use std::net::SocketAddr;

use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName,
};

/// Services by frontend, such as `("10.96.0.10:80", Tcp, &["10.244.1.2:8080"])`.
pub(crate) fn desired(services: &[(&str, Protocol, &[&str])]) -> DesiredState {
    let services = services.iter().map(|(frontend, protocol, endpoints)| {
        let name = ServicePortName {
            namespace: "default".to_owned(),
            name: format!("{frontend}-{protocol}"),
            port: String::new(),
        };
        (name, port(frontend, *protocol, endpoints))
    });
    let mut desired = DesiredState::default();
    desired.v4.services = services.collect();
    desired
}

fn port(frontend: &str, protocol: Protocol, endpoints: &[&str]) -> ServicePort {
    let frontend: SocketAddr = frontend.parse().unwrap();
    let endpoints = endpoints.iter().map(|e| Endpoint {
        addr: e.parse().unwrap(),
        local: true,
    });
    ServicePort {
        frontends: vec![Frontend {
            addr: frontend.ip(),
            port: frontend.port(),
            protocol,
            kind: FrontendKind::ClusterIp,
        }],
        cluster: endpoints.collect(),
        ..ServicePort::default()
    }
}
