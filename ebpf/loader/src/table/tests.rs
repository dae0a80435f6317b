#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn want(services: &[(&str, &[&str])]) -> Rendered {
    let services = services.iter().map(|(addr, endpoints)| {
        let endpoints = endpoints.iter().map(|e| e.parse().unwrap()).collect();
        ((addr.parse().unwrap(), Protocol::Tcp), endpoints)
    });
    Rendered {
        links: BTreeSet::new(),
        services: services.collect(),
        orphans: 0,
    }
}

fn after(table: &Table, ops: &[Op]) -> Table {
    let mut table = table.clone();
    for op in ops {
        table.done(*op);
    }
    table
}

/// Applies op by op. Every service must lead to its complete old or new endpoints at
/// each step, and come or go only as wanted.
#[track_caller]
fn transition(table: &Table, to: &Rendered) -> Table {
    let from = table.rendered(BTreeSet::new());
    let ops = table.plan(to);
    let mut now = table.clone();
    for op in &ops {
        now.done(*op);
        let seen = now.rendered(BTreeSet::new());
        for frontend in from.services.keys().chain(to.services.keys()) {
            let allowed = [from.services.get(frontend), to.services.get(frontend)];
            assert!(
                allowed.contains(&seen.services.get(frontend)),
                "{frontend:?} after {op:?}"
            );
        }
    }
    assert_eq!(now.rendered(BTreeSet::new()), *to);
    assert_eq!(now.plan(to), [], "a second plan is empty");
    now
}

const A: &str = "10.96.0.1:80";
const B: &str = "10.96.0.2:80";

#[test]
fn endpoints_change_without_a_gap() {
    let steps: [&[(&str, &[&str])]; 6] = [
        &[(A, &["10.0.0.1:1", "10.0.0.2:1"]), (B, &["10.0.0.9:1"])],
        &[(A, &["10.0.0.2:1"]), (B, &["10.0.0.9:1"])],
        &[(A, &["10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"])],
        &[(A, &[]), (B, &["10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"])],
        &[(A, &["10.0.0.1:1"]), (B, &[])],
        &[],
    ];
    let mut table = Table::default();
    for step in steps {
        table = transition(&table, &want(step));
    }
    assert_eq!(table, Table::default(), "nothing is left");
}

#[test]
fn equal_endpoints_share_a_set() {
    let table = transition(
        &Table::default(),
        &want(&[(A, &["10.0.0.1:1"]), (B, &["10.0.0.1:1"])]),
    );
    assert_eq!(table.slots.len(), 1);
    let table = transition(&table, &want(&[(A, &["10.0.0.1:1"])]));
    assert_eq!(table.slots.len(), 1, "still in use by the other service");
}

#[test]
fn numbers_are_not_used_again_while_the_old_set_may_be_read() {
    let first = transition(&Table::default(), &want(&[(A, &["10.0.0.1:1"])]));
    let second = transition(&first, &want(&[(A, &["10.0.0.2:1"])]));
    let set = |table: &Table| table.services.values().next().unwrap().set;
    assert_eq!((set(&first), set(&second)), (1, 2));
}

#[test]
fn interrupted_update_is_seen_and_cleaned() {
    let first = transition(&Table::default(), &want(&[(A, &["10.0.0.1:1"])]));
    let to = want(&[(A, &["10.0.0.2:1", "10.0.0.3:1"])]);
    let ops = first.plan(&to);
    for done in 0..ops.len() {
        let crashed = after(&first, &ops[..done]);
        assert_ne!(
            crashed.rendered(BTreeSet::new()),
            to,
            "after {done} steps there is still work"
        );
        transition(&crashed, &to);
    }
}

#[test]
fn damaged_entries_differ_from_anything_wanted() {
    let to = want(&[(A, &["10.0.0.1:1", "10.0.0.2:1"])]);
    let sound = transition(&Table::default(), &to);
    let mut gap = sound.clone();
    let first = *gap.slots.keys().next().unwrap();
    gap.done(Op::DeleteSlot(first));
    assert_ne!(gap.rendered(BTreeSet::new()), to);
    assert_eq!(after(&gap, &gap.plan(&to)).rendered(BTreeSet::new()), to);

    let key = *sound.services.keys().next().unwrap();
    let mut foreign = sound.services[&key];
    foreign.owner.port = Be16::from_host(1);
    let mut table = sound.clone();
    table.done(Op::PutService(key, foreign));
    assert_ne!(table.rendered(BTreeSet::new()), to);
    assert_eq!(
        after(&table, &table.plan(&to)).rendered(BTreeSet::new()),
        to
    );
}

#[test]
fn dump_is_read_in_network_byte_order() {
    let key = FrontendKey {
        addr: Be32::from_network(u32::from_ne_bytes([10, 96, 0, 1])),
        port: Be16::from_network(u16::from_ne_bytes([0, 80])),
        protocol: PROTO_TCP,
        pad: 0,
    };
    let owner = SlotKey { set: 7, index: 0 };
    let value = slot(owner, "10.0.0.1:8080".parse().unwrap());
    assert_eq!(value.addr.network().to_ne_bytes(), [10, 0, 0, 1]);
    let table = Table::new(
        [(
            key,
            Service {
                set: 7,
                count: 1,
                owner: key,
            },
        )],
        [(owner, value)],
    );
    assert_eq!(
        table.rendered(BTreeSet::new()),
        want(&[(A, &["10.0.0.1:8080"])])
    );
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Few frontends and endpoints, so that states share sets, and numbers come back.
    fn content() -> impl Strategy<Value = Rendered> {
        let endpoints = proptest::collection::btree_set(1_u8..5, 0..4);
        proptest::collection::btree_map(1_u8..6, endpoints, 0..6).prop_map(|services| {
            let addr = |net, host| SocketAddrV4::new(Ipv4Addr::new(10, net, 0, host), 80);
            let services = services.into_iter().map(|(service, endpoints)| {
                let endpoints = endpoints.into_iter().map(|host| addr(244, host));
                ((addr(96, service), Protocol::Tcp), endpoints.collect())
            });
            Rendered {
                links: BTreeSet::new(),
                services: services.collect(),
                orphans: 0,
            }
        })
    }

    proptest! {
        #[test]
        fn any_change_is_safe_at_each_step_even_after_a_crash(
            states in proptest::collection::vec((content(), 0_usize..20), 1..6),
        ) {
            let mut table = Table::default();
            for (state, crash_after) in states {
                let ops = table.plan(&state);
                let crashed = after(&table, &ops[..crash_after.min(ops.len())]);
                transition(&table, &state);
                table = transition(&crashed, &state);
                let other = crashed;
                prop_assert_eq!(transition(&other, &Rendered::default()), Table::default());
            }
        }
    }
}
