#![allow(clippy::unwrap_used, reason = "tests")]

use seaway_proxy_core::desired::{Endpoint, FrontendKind, ServicePort};

use super::*;

fn port(frontends: &[(&str, Protocol)], endpoints: &[&str]) -> ServicePort {
    let frontends = frontends.iter().map(|(addr, protocol)| {
        let addr: SocketAddr = addr.parse().unwrap();
        let kind = FrontendKind::ClusterIp;
        Frontend {
            addr: addr.ip(),
            port: addr.port(),
            protocol: *protocol,
            kind,
        }
    });
    let endpoints = endpoints.iter().map(|addr| Endpoint {
        addr: addr.parse().unwrap(),
        local: false,
    });
    ServicePort {
        frontends: frontends.collect(),
        endpoints: endpoints.collect(),
    }
}

fn desired(ports: &[(&str, ServicePort)]) -> DesiredState {
    let services = ports.iter().map(|(name, port)| {
        let name = ServicePortName {
            namespace: "default".to_owned(),
            name: (*name).to_owned(),
            port: String::new(),
        };
        (name, port.clone())
    });
    DesiredState {
        services: services.collect(),
    }
}

/// The lines of services; those of links are the same for all.
fn services(rendered: &Rendered) -> String {
    let text = rendered.to_string();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("link "));
    lines.collect()
}

#[test]
fn links_are_wanted_even_without_services() {
    let text = render(&DesiredState::default()).to_string();
    assert_eq!(
        text,
        "\
link connect4
link connect6
link getpeername4
link getpeername6
link recvmsg4
link recvmsg6
link sendmsg4
link sendmsg6
"
    );
}

#[test]
fn one_line_per_map_entry_sorted_by_address() {
    let desired = desired(&[
        (
            "web",
            port(
                &[("10.96.0.20:80", Protocol::Tcp)],
                &["10.244.1.2:8080", "10.244.2.3:8080"],
            ),
        ),
        (
            "dns",
            port(&[("10.96.0.10:53", Protocol::Udp)], &["10.244.1.9:53"]),
        ),
        (
            "dns-tcp",
            port(&[("10.96.0.10:53", Protocol::Tcp)], &["10.244.1.9:53"]),
        ),
        ("empty", port(&[("10.96.0.30:80", Protocol::Tcp)], &[])),
    ]);
    assert_eq!(
        services(&render(&desired)),
        "\
service 10.96.0.10:53/TCP endpoints=1
slot 10.96.0.10:53/TCP 0 10.244.1.9:53
service 10.96.0.10:53/UDP endpoints=1
slot 10.96.0.10:53/UDP 0 10.244.1.9:53
service 10.96.0.20:80/TCP endpoints=2
slot 10.96.0.20:80/TCP 0 10.244.1.2:8080
slot 10.96.0.20:80/TCP 1 10.244.2.3:8080
service 10.96.0.30:80/TCP endpoints=0
"
    );
}

#[test]
fn ipv6_is_left_out_and_named() {
    let desired = desired(&[(
        "web",
        port(
            &[
                ("10.96.0.20:80", Protocol::Tcp),
                ("[fd00::20]:80", Protocol::Tcp),
            ],
            &["10.244.1.2:8080", "[fd01::2]:8080"],
        ),
    )]);
    assert_eq!(
        services(&render(&desired)),
        "service 10.96.0.20:80/TCP endpoints=1\nslot 10.96.0.20:80/TCP 0 10.244.1.2:8080\n"
    );
    let left_out = unsupported(&desired);
    let [only] = left_out.as_slice() else {
        panic!("{left_out:?}")
    };
    assert_eq!(only.service.to_string(), "default/web");
    assert_eq!(only.frontend.to_string(), "[fd00::20]:80/TCP");
    assert_eq!(only.reason, UnsupportedReason::Ipv6);
}
