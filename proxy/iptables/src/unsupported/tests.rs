#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use seaway_proxy_core::desired::{Endpoint, Frontend, FrontendKind, Protocol};

use super::*;

fn desired(frontend: &str) -> DesiredState {
    let frontend: std::net::SocketAddr = frontend.parse().unwrap();
    let name = ServicePortName {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        port: "http".to_owned(),
    };
    let port = ServicePort {
        frontends: vec![Frontend {
            addr: frontend.ip(),
            port: frontend.port(),
            protocol: Protocol::Tcp,
            kind: FrontendKind::ClusterIp,
        }],
        cluster: vec![Endpoint {
            addr: frontend,
            local: false,
        }],
        affinity: Some(Duration::from_hours(3)),
        ..ServicePort::default()
    };
    let mut desired = DesiredState::default();
    let half = desired.family_mut(Family::of(frontend.ip()));
    half.services.insert(name, port);
    desired
}

/// Without sets of clients a Service is served, and without a match of ports it is not.
#[test]
fn a_missing_module_is_named_and_what_is_served_without_it() {
    for (module, told, served) in [
        (
            Module::Sets,
            r#"Service default/web: spec.ports[name="http"]: 10.96.0.1:80/TCP: served without session affinity, this node's kernel does not have ip_set_hash_ip or xt_set"#,
            true,
        ),
        (
            Module::Statistic,
            r#"Service default/web: spec.ports[name="http"]: 10.96.0.1:80/TCP: this node's kernel does not have xt_statistic"#,
            false,
        ),
    ] {
        let mut desired = desired("10.96.0.1:80");
        for port in desired.v4.services.values_mut() {
            port.cluster.push(port.cluster[0]);
        }
        let mut lacking = Lacking::default();
        assert!(lacking.found(module, false, Duration::from_mins(1)));
        let skipped = of(&desired, &Family::ALL, true, &lacking);
        let [skipped] = &skipped[..] else {
            panic!("{skipped:?}");
        };
        assert_eq!(skipped.to_string(), told);
        let SkipReason::Backend { served: said, .. } = skipped.reason else {
            panic!("{skipped:?}");
        };
        assert_eq!(said, served);
        lacking.found(module, true, Duration::from_mins(1));
        assert_eq!(of(&desired, &Family::ALL, true, &lacking), []);
    }
}

#[test]
fn what_is_missing_is_named() {
    let both = &Family::ALL[..];
    let told = |frontend: &str, families: &[Family], ipset: bool| -> Vec<String> {
        let skipped = of(&desired(frontend), families, ipset, &Lacking::default());
        skipped.iter().map(ToString::to_string).collect()
    };
    assert!(told("10.96.0.1:80", both, true).is_empty());
    assert!(told("[fd00::1]:80", both, true).is_empty());
    assert_eq!(
        told("[fd00::1]:80", &[Family::V4], true),
        [
            r#"Service default/web: spec.ports[name="http"]: [fd00::1]:80/TCP: ip6tables does not work on this node"#
        ]
    );
    assert_eq!(
        told("10.96.0.1:80", both, false),
        [
            r#"Service default/web: spec.ports[name="http"]: 10.96.0.1:80/TCP: served without session affinity, ipset does not work on this node"#
        ]
    );
}
