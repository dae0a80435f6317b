//! What must hold for every history of events.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use seaway_proxy_core::backend::Backend;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::fake::Fake;
use seaway_proxy_core::{Compiler, Model, Node, compile, sync_once};

#[path = "props/objects.rs"]
mod objects;
#[path = "props/world.rs"]
mod world;

use objects::node;
use world::{Event, Gap, World, event, feed};

/// The fake never waits, so one poll is enough.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the fake backend does not wait"),
    }
}

/// Of a history of up to so many events.
fn gap(events: usize) -> impl Strategy<Value = Gap> {
    (0..6usize, 0..events).prop_map(|(lost, relist_at)| Gap { lost, relist_at })
}

proptest! {
    /// However the events are ordered between the kinds, repeated, or lost and made up for by a
    /// relist, the state of the world alone decides.
    #[test]
    fn only_the_present_objects_matter(
        events in proptest::collection::vec(event(), 0..40),
        gap in gap(40),
        twice in any::<u64>(),
    ) {
        let mut world = World::default();
        let mut model = Model::new();
        for (i, event) in events.iter().enumerate() {
            world.happen(event);
            if !gap.loses(i, events.len()) {
                feed(&mut model, event);
                if twice >> (i % 64) & 1 == 1 {
                    feed(&mut model, event);
                }
            }
            if gap.ends(i, events.len()) {
                world.relist(&mut model, twice & 1 == 1);
                prop_assert_eq!(compile(&model, &node()), world.compiled());
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

    /// Following changes, in whatever portions they come, a relist that makes up for lost
    /// events, a repeated event or a node that changes among them, gives what computing it all
    /// from what is there gives.
    #[test]
    fn following_is_computing(
        events in proptest::collection::vec(event(), 0..60),
        portions in any::<u64>(),
        twice in any::<u64>(),
        gap in gap(60),
        moves_at in 0..60usize,
    ) {
        let mut world = World::default();
        let mut model = Model::new();
        let mut node = node();
        let mut compiler = Compiler::new(node.clone());
        for (i, event) in events.iter().enumerate() {
            world.happen(event);
            let is_lost = gap.loses(i, events.len());
            if !is_lost {
                feed(&mut model, event);
                if twice >> (i % 64) & 1 == 1 {
                    feed(&mut model, event);
                }
            }
            let is_listed = gap.ends(i, events.len());
            if is_listed {
                world.relist(&mut model, portions & 2 == 2);
            }
            if i == moves_at {
                node = Node { zone: Some("b".to_owned()), external_ips: false, ..Node::named("n0") };
            }
            if portions >> (i % 64) & 1 == 1 {
                compiler.update(&mut model, &node);
                // In the gap nobody can know more than the model.
                let whole = if is_lost && !is_listed {
                    compile(&model, &node)
                } else {
                    world.compiled_on(&node, &Family::ALL)
                };
                prop_assert_eq!(compiler.desired(), &whole.desired);
                prop_assert_eq!(compiler.skipped(&model), whole.skipped);
            }
        }
        compiler.update(&mut model, &node);
        let whole = world.compiled_on(&node, &Family::ALL);
        prop_assert_eq!(compiler.desired(), &whole.desired);
        prop_assert_eq!(compiler.skipped(&model), whole.skipped);
        // And when nothing has happened, nothing is looked at.
        prop_assert!(compiler.update(&mut model, &node).is_empty());
    }

    /// What is wrong, contested or missing in one family changes nothing in the other.
    #[test]
    fn a_family_is_as_if_there_were_no_other(
        events in proptest::collection::vec(event(), 0..40),
    ) {
        let world = World::of(&events);
        let both = world.compiled().desired;
        for family in Family::ALL {
            let alone = world.compiled_on(&node(), &[family]).desired;
            prop_assert_eq!(alone.family(family), both.family(family));
        }
    }

    /// No frontend belongs to two; an endpoint never appears twice, and all are of one family.
    #[test]
    fn the_desired_state_is_sound(events in proptest::collection::vec(event(), 0..40)) {
        let desired = World::of(&events).compiled().desired;
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
        let events = histories.new_tree(&mut runner).unwrap().current();
        let desired = World::of(&events).compiled().desired;
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

/// Otherwise a relist that forgets nobody, or leaves everybody as he was, would do.
#[test]
fn relists_find_what_was_deleted_and_what_was_changed_unseen() {
    const EVENTS: usize = 40;
    let mut runner = TestRunner::deterministic();
    let histories = (proptest::collection::vec(event(), EVENTS), gap(EVENTS));
    let (mut deleted, mut changed, mut lost) = (0, 0, 0);
    for _ in 0..400 {
        let (events, gap) = histories.new_tree(&mut runner).unwrap().current();
        let known = (0..=gap.relist_at).filter(|i| !gap.loses(*i, EVENTS));
        let known: Vec<Event> = known.map(|i| events[i].clone()).collect();
        lost += gap.relist_at + 1 - known.len();
        let (before, now) = (World::of(&known), World::of(&events[..=gap.relist_at]));
        for (before, now) in [(before.services, now.services), (before.slices, now.slices)] {
            for (name, content) in before {
                match now.get(&name) {
                    None => deleted += 1,
                    Some(other) => changed += usize::from(*other != content),
                }
            }
        }
    }
    eprintln!("of {lost} lost events {deleted} deleted and {changed} changed what was known");
    assert!(deleted >= 50 && changed >= 50);
}

#[test]
fn the_fake_does_fail() {
    let mut fake = Fake::new(7, 10);
    let errors = (0..1000).filter(|_| now(fake.read_back()).is_err()).count();
    assert!((50..200).contains(&errors), "{errors} of 1000");
}
