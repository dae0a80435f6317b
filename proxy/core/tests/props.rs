//! What must hold for every history of events.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use seaway_proxy_core::backend::Backend;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::fake::Fake;
use seaway_proxy_core::{Compiled, Compiler, Model, Node, ObjectKey, compile, sync_once};

#[path = "props/objects.rs"]
mod objects;

use objects::{node, service, slice};

/// One event of a watch: names and contents.
#[derive(Clone, Debug)]
enum Event {
    ApplyService(u8, u16),
    DeleteService(u8),
    ApplySlice(u8, u16),
    DeleteSlice(u8),
}

/// The objects that exist after all events.
#[derive(Clone, Debug, Default)]
struct World {
    services: BTreeMap<u8, u16>,
    slices: BTreeMap<u8, u16>,
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

    /// What of them is of these families.
    fn list(&self, only: &[Family]) -> (Vec<Service>, Vec<EndpointSlice>) {
        let services = self.services.iter();
        let slices = self.slices.iter();
        (
            services
                .filter_map(|(&name, &content)| service(name, content, only))
                .collect(),
            slices
                .filter_map(|(&name, &content)| slice(name, content, only))
                .collect(),
        )
    }

    /// From one list of each kind, into an empty model.
    fn compiled(&self) -> Compiled {
        self.compiled_of(&Family::ALL)
    }

    fn compiled_of(&self, only: &[Family]) -> Compiled {
        let mut model = Model::new();
        let (services, slices) = self.list(only);
        model.reset_services(&services);
        model.reset_slices(&slices);
        compile(&model, &node())
    }
}

fn feed(model: &mut Model, event: &Event) {
    match *event {
        Event::ApplyService(name, content) => {
            model.apply_service(&service(name, content, &Family::ALL).unwrap())
        }
        Event::DeleteService(name) => {
            model.delete_service(&ObjectKey::new("ns", format!("svc{name}")))
        }
        Event::ApplySlice(name, content) => {
            model.apply_slice(&slice(name, content, &Family::ALL).unwrap())
        }
        Event::DeleteSlice(name) => {
            model.delete_slice(&ObjectKey::new("ns", format!("slice{name}")))
        }
    };
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..5u8, any::<u16>()).prop_map(|(name, content)| Event::ApplyService(name, content)),
        1 => (0..5u8).prop_map(Event::DeleteService),
        4 => (0..6u8, any::<u16>()).prop_map(|(name, content)| Event::ApplySlice(name, content)),
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
                let (services, slices) = world.list(&Family::ALL);
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
                let (services, slices) = world.list(&Family::ALL);
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

    /// What is wrong, contested or missing in one family changes nothing in the other.
    #[test]
    fn a_family_is_as_if_there_were_no_other(
        events in proptest::collection::vec(event(), 0..40),
    ) {
        let mut world = World::default();
        for event in &events {
            world.happen(event);
        }
        let both = world.compiled().desired;
        for family in Family::ALL {
            let alone = world.compiled_of(&[family]).desired;
            prop_assert_eq!(alone.family(family), both.family(family));
        }
    }

    /// No frontend belongs to two; an endpoint never appears twice, and all are of one family.
    #[test]
    fn the_desired_state_is_sound(events in proptest::collection::vec(event(), 0..40)) {
        let mut world = World::default();
        for event in &events {
            world.happen(event);
        }
        let desired = world.compiled().desired;
        for family in Family::ALL {
            let half = desired.family(family);
            let frontends = half.services.values().flat_map(|port| &port.frontends);
            let mut claims: Vec<_> = frontends.map(|f| (f.addr, f.port, f.protocol)).collect();
            let all = claims.len();
            claims.sort_unstable();
            claims.dedup();
            prop_assert_eq!(claims.len(), all);
            for port in half.services.values() {
                prop_assert!(!port.frontends.is_empty());
                let at = port.frontends.iter().map(|frontend| frontend.addr);
                let to = port.endpoints().into_iter().map(|endpoint| endpoint.addr.ip());
                prop_assert!(at.chain(to).all(|addr| Family::of(addr) == family));
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

/// Otherwise what holds for all of them would hold for want of objects.
#[test]
fn histories_come_to_services_of_either_family_and_of_both() {
    let mut runner = TestRunner::deterministic();
    let histories = proptest::collection::vec(event(), 40);
    let (mut only_v4, mut only_v6, mut both) = (0, 0, 0);
    for _ in 0..400 {
        let mut world = World::default();
        for event in &histories.new_tree(&mut runner).unwrap().current() {
            world.happen(event);
        }
        let desired = world.compiled().desired;
        let answered = |family| -> BTreeSet<String> {
            let ports = desired.family(family).services.iter();
            let answered = ports.filter(|(_, port)| !port.endpoints().is_empty());
            answered.map(|(name, _)| name.to_string()).collect()
        };
        let (v4, v6) = (answered(Family::V4), answered(Family::V6));
        only_v4 += v4.difference(&v6).count();
        only_v6 += v6.difference(&v4).count();
        both += v4.intersection(&v6).count();
    }
    eprintln!("answered in IPv4 {only_v4}, in IPv6 {only_v6}, in both {both}");
    assert!(only_v4.min(only_v6).min(both) >= 5);
}

#[test]
fn the_fake_does_fail() {
    let mut fake = Fake::new(7, 10);
    let errors = (0..1000).filter(|_| now(fake.read_back()).is_err()).count();
    assert!((50..200).contains(&errors), "{errors} of 1000");
}
