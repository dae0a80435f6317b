#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use seaway_proxy_core::desired::{Endpoint, Family};

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
        cluster: endpoints.collect(),
        ..ServicePort::default()
    }
}

/// Every port in the half of its frontends.
fn desired(ports: &[(&str, ServicePort)]) -> DesiredState {
    let mut desired = DesiredState::default();
    for (name, port) in ports {
        let name = ServicePortName {
            namespace: "default".to_owned(),
            name: (*name).to_owned(),
            port: String::new(),
        };
        let family = Family::of(port.frontends[0].addr);
        let half = desired.family_mut(family);
        half.services.insert(name, port.clone());
    }
    desired
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

/// What is left out, and why.
#[track_caller]
fn check_unsupported(
    desired: &DesiredState,
    rendered: &str,
    expected: &[(&str, UnsupportedReason)],
) {
    assert_eq!(services(&render(desired)), rendered);
    let found: Vec<_> = unsupported(desired)
        .into_iter()
        .map(|left_out| (left_out.frontend.to_string(), left_out.reason))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(frontend, reason)| ((*frontend).to_owned(), *reason))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn what_is_left_out_is_named() {
    let web = port(&[("10.96.0.20:80", Protocol::Tcp)], &["10.244.1.2:8080"]);
    let v6 = port(&[("[fd00::20]:80", Protocol::Tcp)], &["[fd01::2]:8080"]);
    let served =
        "service 10.96.0.20:80/TCP endpoints=1\nslot 10.96.0.20:80/TCP 0 10.244.1.2:8080\n";
    let ipv6 = ("[fd00::20]:80/TCP", UnsupportedReason::Ipv6);
    check_unsupported(
        &desired(&[("web", web.clone()), ("web", v6)]),
        served,
        &[ipv6],
    );

    let mut balanced = web.clone();
    let mut node_port = balanced.frontends[0];
    node_port.kind = FrontendKind::NodePort;
    node_port.port = 30080;
    balanced.frontends.push(node_port);
    let kind = (
        "NodePort 30080/TCP",
        UnsupportedReason::Kind(FrontendKind::NodePort),
    );
    check_unsupported(&desired(&[("web", balanced)]), served, &[kind]);

    let sctp = port(&[("10.96.0.20:80", Protocol::Sctp)], &["10.244.1.2:8080"]);
    let reason = ("10.96.0.20:80/SCTP", UnsupportedReason::Sctp);
    check_unsupported(&desired(&[("web", sctp)]), "", &[reason]);

    let mut sticky = web;
    sticky.affinity = Some(Duration::from_hours(3));
    let reason = ("10.96.0.20:80/TCP", UnsupportedReason::Affinity);
    check_unsupported(&desired(&[("web", sticky)]), served, &[reason]);
}

#[test]
fn a_local_cluster_ip_leads_to_local_endpoints_only() {
    let mut web = port(
        &[("10.96.0.20:80", Protocol::Tcp)],
        &["10.244.1.2:8080", "10.244.2.3:8080"],
    );
    web.internal = TrafficPolicy::Local;
    web.local = vec![web.cluster[1]];
    let served =
        "service 10.96.0.20:80/TCP endpoints=1\nslot 10.96.0.20:80/TCP 0 10.244.2.3:8080\n";
    check_unsupported(&desired(&[("web", web)]), served, &[]);
}
