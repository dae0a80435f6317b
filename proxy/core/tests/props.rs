//! What must hold for every history of events.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use seaway_proxy_core::backend::Backend;
use seaway_proxy_core::fake::Fake;
use seaway_proxy_core::{Compiled, Compiler, Model, Node, ObjectKey, compile, sync_once};
use serde_json::json;

/// One event of a watch. Numbers choose among few names and contents, so that
/// objects meet, conflict and come back.
#[derive(Clone, Debug)]
enum Event {
    ApplyService(u8, u8),
    DeleteService(u8),
    ApplySlice(u8, u8),
    DeleteSlice(u8),
}

fn service(name: u8, content: u8) -> Service {
    // Addresses collide between names, one is malformed, one is headless.
    let ips = [
        "10.96.0.1",
        "10.96.0.2",
        "10.96.0.3",
        "10.96.0.x",
        "None",
        "172.30.0.041",
    ];
    let ip = ips[usize::from(content) % ips.len()];
    let created = format!("2024-01-0{}T00:00:00Z", 1 + content % 3);
    let ports = match content % 4 {
        0 => json!([{"port": 80, "nodePort": 30000 + u16::from(content % 3)}]),
        1 => json!([{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]),
        2 => json!([{"name": "a", "port": 0}, {"name": "b", "port": 80}]),
        _ => json!([{"name": "a", "port": 443}]),
    };
    let external = ["192.0.2.1", "192.0.2.2", "10.96.0.1"];
    let pick = |shift: u8| usize::from(content >> shift) % 3;
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("svc{name}"), "creationTimestamp": created},
        "spec": {
            "type": "LoadBalancer", "clusterIP": ip, "ports": ports,
            "externalIPs": [external[pick(1)]],
            "externalTrafficPolicy": if content & 8 == 0 { "Local" } else { "Cluster" },
            "internalTrafficPolicy": if content & 16 == 0 { "Local" } else { "Cluster" },
            "healthCheckNodePort": 32000 + u16::from(name),
            "loadBalancerSourceRanges": if content & 32 == 0 { json!([]) } else { json!(["192.168.0.0/24"]) },
        },
        "status": {"loadBalancer": {"ingress": [{"ip": external[pick(3)]}]}},
    });
    serde_json::from_value(object).unwrap()
}

fn slice(name: u8, content: u8) -> EndpointSlice {
    let ready = content & 1 == 0;
    let endpoints: Vec<_> = (0..content % 4)
        .map(|i| {
            json!({
                "addresses": [format!("10.0.0.{}", 1 + (i + content % 5) % 5)],
                "nodeName": format!("n{}", i % 2),
                "hints": if content & 64 == 0 {
                    json!({"forZones": [{"name": if i % 2 == 0 { "a" } else { "b" }}]})
                } else {
                    json!(null)
                },
                "conditions": {"ready": ready, "serving": true, "terminating": content & 2 == 0},
            })
        })
        .collect();
    let object = json!({
        "metadata": {"namespace": "ns", "name": format!("slice{name}"),
                     "labels": {"kubernetes.io/service-name": format!("svc{}", content % 4)}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}, {"name": "a", "port": 8080},
                  {"name": "b", "port": 5353, "protocol": "UDP"}],
        "endpoints": endpoints,
    });
    serde_json::from_value(object).unwrap()
}

/// In zone `a`, with an address in one of the source ranges.
fn node() -> Node {
    Node {
        zone: Some("a".to_owned()),
        addresses: vec!["192.168.0.2".parse().unwrap()],
        ..Node::named("n1")
    }
}

/// The objects that exist after all events.
#[derive(Clone, Debug, Default)]
struct World {
    services: BTreeMap<u8, u8>,
    slices: BTreeMap<u8, u8>,
}

impl World {
    fn happen(&mut self, event: &Event) {
        match *event {
            Event::ApplyService(name, content) => {
                self.services.insert(name, content);
            }
            Event::DeleteService(name) => {
                self.services.remove(&name);
            }
            Event::ApplySlice(name, content) => {
                self.slices.insert(name, content);
            }
            Event::DeleteSlice(name) => {
                self.slices.remove(&name);
            }
        }
    }

    fn list(&self) -> (Vec<Service>, Vec<EndpointSlice>) {
        let services = self
            .services
            .iter()
            .map(|(&name, &content)| service(name, content));
        let slices = self
            .slices
            .iter()
            .map(|(&name, &content)| slice(name, content));
        (services.collect(), slices.collect())
    }

    /// From one list of each kind, into an empty model.
    fn compiled(&self) -> Compiled {
        let mut model = Model::new();
        let (services, slices) = self.list();
        model.reset_services(&services);
        model.reset_slices(&slices);
        compile(&model, &node())
    }
}

fn feed(model: &mut Model, event: &Event) {
    match *event {
        Event::ApplyService(name, content) => model.apply_service(&service(name, content)),
        Event::DeleteService(name) => {
            model.delete_service(&ObjectKey::new("ns", format!("svc{name}")))
        }
        Event::ApplySlice(name, content) => model.apply_slice(&slice(name, content)),
        Event::DeleteSlice(name) => {
            model.delete_slice(&ObjectKey::new("ns", format!("slice{name}")))
        }
    };
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..5u8, any::<u8>()).prop_map(|(name, content)| Event::ApplyService(name, content)),
        1 => (0..5u8).prop_map(Event::DeleteService),
        4 => (0..6u8, any::<u8>()).prop_map(|(name, content)| Event::ApplySlice(name, content)),
        1 => (0..6u8).prop_map(Event::DeleteSlice),
    ]
}

/// The fake never waits, so one poll is enough.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the fake backend does not wait"),
    }
}

proptest! {
    /// However the events are ordered between the kinds, repeated, or cut short
    /// by a relist, the state of the world alone decides.
    #[test]
    fn only_the_present_objects_matter(
        events in proptest::collection::vec(event(), 0..40),
        relist_at in 0..40usize,
        twice in any::<u64>(),
    ) {
        let mut world = World::default();
        let mut model = Model::new();
        for (i, event) in events.iter().enumerate() {
            feed(&mut model, event);
            world.happen(event);
            if twice >> (i % 64) & 1 == 1 {
                feed(&mut model, event);
            }
            if i == relist_at {
                let (services, slices) = world.list();
                model.reset_slices(&slices);
                model.reset_services(&services);
            }
        }
        prop_assert_eq!(compile(&model, &node()), world.compiled());

        // All events of one kind before those of the other, in both orders.
        let is_slice = |e: &&Event| matches!(e, Event::ApplySlice(..) | Event::DeleteSlice(_));
        for slices_first in [true, false] {
            let mut model = Model::new();
            events.iter().filter(|e| is_slice(e) == slices_first).for_each(|e| feed(&mut model, e));
            events.iter().filter(|e| is_slice(e) != slices_first).for_each(|e| feed(&mut model, e));
            prop_assert_eq!(compile(&model, &node()), world.compiled());
        }
    }

    /// Following changes, in whatever portions they come, a relist that drops objects, a
    /// repeated event or a node that changes among them, gives what computing it all gives.
    #[test]
    fn following_is_computing(
        events in proptest::collection::vec(event(), 0..60),
        portions in any::<u64>(),
        twice in any::<u64>(),
        relist_at in 0..60usize,
        moves_at in 0..60usize,
    ) {
        let mut world = World::default();
        let mut model = Model::new();
        let mut node = node();
        let mut compiler = Compiler::new(node.clone());
        for (i, event) in events.iter().enumerate() {
            world.happen(event);
            // What comes just before a relist is lost, and the list makes up for it.
            if i + 3 < relist_at || i >= relist_at {
                feed(&mut model, event);
            }
            if twice >> (i % 64) & 1 == 1 && i >= relist_at {
                feed(&mut model, event);
            }
            if i == relist_at {
                let (services, slices) = world.list();
                model.reset_services(&services);
                model.reset_slices(&slices);
            }
            if i == moves_at {
                node = Node { zone: Some("b".to_owned()), external_ips: false, ..Node::named("n0") };
            }
            if portions >> (i % 64) & 1 == 1 {
                compiler.update(&mut model, &node);
                let whole = compile(&model, &node);
                prop_assert_eq!(compiler.desired(), &whole.desired);
                prop_assert_eq!(compiler.skipped(&model), whole.skipped);
            }
        }
        compiler.update(&mut model, &node);
        prop_assert_eq!(compiler.desired(), &compile(&model, &node).desired);
        // And when nothing has happened, nothing is looked at.
        prop_assert!(compiler.update(&mut model, &node).is_empty());
    }

    /// No frontend belongs to two; an endpoint never appears twice.
    #[test]
    fn the_desired_state_is_sound(events in proptest::collection::vec(event(), 0..40)) {
        let mut world = World::default();
        for event in &events {
            world.happen(event);
        }
        let desired = world.compiled().desired;
        for half in [&desired.v4, &desired.v6] {
            let frontends = half.services.values().flat_map(|port| &port.frontends);
            let mut claims: Vec<_> = frontends.map(|f| (f.addr, f.port, f.protocol)).collect();
            let all = claims.len();
            claims.sort_unstable();
            claims.dedup();
            prop_assert_eq!(claims.len(), all);
            for port in half.services.values() {
                prop_assert!(!port.frontends.is_empty());
                prop_assert!(port.cluster.is_sorted_by(|a, b| a.addr < b.addr));
                prop_assert!(port.local.is_sorted_by(|a, b| a.addr < b.addr));
                prop_assert!(port.local.iter().all(|endpoint| endpoint.local));
                prop_assert!(!port.cluster.is_empty() || port.local.is_empty());
            }
        }
    }

    /// In spite of faults in one step of ten, the fake kernel ends up right.
    #[test]
    fn sync_converges_under_faults(
        seed in any::<u64>(),
        events in proptest::collection::vec(event(), 1..40),
    ) {
        let mut fake = Fake::new(seed, 10);
        let mut world = World::default();
        let mut have = None;
        for event in &events {
            world.happen(event);
            have = now(sync_once(&mut fake, have, &world.compiled().desired))
                .ok()
                .map(|report| report.rendered);
            if let Some(have) = &have {
                prop_assert_eq!(have, fake.state());
            }
        }
        fake.heal();
        let desired = world.compiled().desired;
        let report = now(sync_once(&mut fake, have, &desired)).unwrap();
        prop_assert_eq!(&report.rendered, fake.state());
        prop_assert_eq!(&fake.render(&desired), fake.state());
        // And once it is right, it is left alone.
        prop_assert!(!now(sync_once(&mut fake, None, &desired)).unwrap().changed);
    }
}

#[test]
fn the_fake_does_fail() {
    let mut fake = Fake::new(7, 10);
    let errors = (0..1000).filter(|_| now(fake.read_back()).is_err()).count();
    assert!((50..200).contains(&errors), "{errors} of 1000");
}
