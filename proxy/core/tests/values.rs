//! What small values say of themselves.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use seaway_proxy_core::backend::{Backend as _, BackendError, Retry};
use seaway_proxy_core::desired::{
    DesiredState, Endpoint, Family, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName,
    TrafficPolicy,
};
use seaway_proxy_core::explain::kernel::{Deviation, Subject, by_lines};
use seaway_proxy_core::fake::Fake;
use seaway_proxy_core::skipped::SkipClass;

#[test]
fn an_error_of_a_backend_says_what_and_its_source_why() {
    let plain = BackendError::new("write the rules", Retry::Backoff);
    assert!(plain.source().is_none());
    assert_eq!((plain.retry(), plain.family()), (Retry::Backoff, None));
    let whole = plain.because("no room").only_in(Some(Family::V6));
    assert_eq!(whole.to_string(), "write the rules");
    assert_eq!(whole.source().unwrap().to_string(), "no room");
    assert_eq!(whole.family(), Some(Family::V6));
}

#[test]
fn classes_have_the_words_of_metrics() {
    let words = [
        (SkipClass::Intended, "intended"),
        (SkipClass::Malformed, "malformed"),
        (SkipClass::Contested, "contested"),
        (SkipClass::Unsupported, "unsupported"),
    ];
    for (class, word) in words {
        assert_eq!(class.as_str(), word);
    }
}

#[test]
fn a_backend_has_what_every_one_has_unless_it_says_otherwise() {
    let fake = Fake::new(1, 0);
    assert_eq!(fake.name(), "fake");
    assert_eq!(fake.variant(), None);
    assert_eq!(fake.families(), [Family::V4]);
    let nothing = fake.render(&DesiredState::default());
    assert!(fake.count(&nothing, &nothing).is_empty());
    assert!(fake.unsupported(&DesiredState::default()).is_empty());
}

/// A failing history is told by its seed, so a seed has to mean the same for ever.
#[test]
fn the_fake_fails_where_its_seed_says() {
    let mut fake = Fake::new(7, 10);
    let mut faults = 0;
    let failed = |_: &usize| {
        let polled = pin!(fake.read_back()).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(result) = polled else {
            panic!("the fake backend does not wait");
        };
        let Err(error) = result else { return false };
        faults += 1;
        let text = format!("read back (fault {faults} of seed 7)");
        assert_eq!(error.to_string(), text);
        true
    };
    let failed: Vec<usize> = (0..100).filter(failed).collect();
    assert_eq!(failed, [1, 6, 33, 35, 40, 41, 42, 60, 79, 84, 87, 98]);
}

fn frontend(kind: FrontendKind) -> Frontend {
    Frontend {
        addr: "10.96.0.1".parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
        kind,
    }
}

#[test]
fn endpoints_are_those_that_some_frontend_uses() {
    use FrontendKind::{ClusterIp, NodePort};
    use TrafficPolicy::{Cluster, Local};
    let endpoint = |text: &str, local| Endpoint {
        addr: text.parse().unwrap(),
        local,
    };
    let (here, there) = (endpoint("10.0.0.1:1", true), endpoint("10.0.0.2:1", false));
    for (kind, internal, external, used) in [
        (ClusterIp, Cluster, Local, vec![there]),
        (ClusterIp, Local, Cluster, vec![here]),
        (NodePort, Local, Cluster, vec![there]),
        (NodePort, Cluster, Local, vec![here, there]),
    ] {
        let port = ServicePort {
            frontends: vec![frontend(kind)],
            cluster: vec![there],
            local: vec![here],
            internal,
            external,
            ..ServicePort::default()
        };
        assert_eq!(port.endpoints(), used, "{kind}");
        assert_eq!(port.uses(Cluster), used.contains(&there), "{kind}");
        assert_eq!(port.uses(Local), used.contains(&here), "{kind}");
    }
}

#[test]
fn a_port_of_both_families_counts_once() {
    let name = |name: &str| ServicePortName {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        port: "http".to_owned(),
    };
    let mut desired = DesiredState::default();
    assert_eq!(desired.service_ports(), 0);
    for service in ["a", "b"] {
        desired
            .v4
            .services
            .insert(name(service), ServicePort::default());
    }
    for service in ["b", "c", "d"] {
        desired
            .v6
            .services
            .insert(name(service), ServicePort::default());
    }
    assert_eq!(desired.service_ports(), 4);
}

#[test]
fn lines_that_name_the_address_or_a_link_are_shown_and_compared() {
    let subject = Subject {
        target: "10.96.0.1:80".parse().unwrap(),
        endpoints: Vec::new(),
    };
    let have = "link connect4\nmap 10.96.0.1:80/TCP 1\nmap 10.96.0.2:80/TCP 1\n";
    let want = "link connect4\nmap 10.96.0.1:80/TCP 2\nmap 10.96.0.2:80/TCP 2\n";
    let found = by_lines(have, want, &subject);
    assert_eq!(found.holds, ["link connect4", "map 10.96.0.1:80/TCP 1"]);
    let [difference] = found.differences.try_into().unwrap();
    assert_eq!(difference.deviation, Deviation::Different);
    let shown =
        "different in the maps: wanted map 10.96.0.1:80/TCP 2, found map 10.96.0.1:80/TCP 1";
    assert_eq!(difference.to_string(), shown);
    let gone = by_lines("", "link connect4\n", &subject);
    assert_eq!(
        gone.differences[0].to_string(),
        "missing in the maps: link connect4"
    );
}
