use std::collections::BTreeSet;

use super::*;

fn store(dir: &tempfile::TempDir) -> Store {
    Store::of_boot(dir.path(), "seaway", "boot-1")
}

fn pool(range: &str) -> Pool {
    Pool::new(vec![range.parse().unwrap()]).unwrap()
}

fn key(n: usize) -> Key {
    Key {
        container_id: format!("c{n}"),
        ifname: "eth0".into(),
    }
}

fn record(n: usize) -> Record {
    Record {
        key: key(n),
        netns: "/run/netns/x".into(),
        netns_id: (4, 4_026_531_840),
        host_ifname: "sw0123456789ab".into(),
        pod: None,
    }
}

#[track_caller]
fn add(store: &Store, pool: &Pool, n: usize) -> String {
    let got = store.reserve(pool, &record(n)).unwrap();
    assert!(got.fresh);
    got.address.to_string()
}

#[test]
fn addresses_are_unique_and_reused_least_recently_used() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    assert_eq!(add(&store, &pool, 1), "10.0.0.2");
    assert_eq!(add(&store, &pool, 2), "10.0.0.3");
    assert_eq!(
        store.release(&key(1)).unwrap(),
        [Ipv4Addr::new(10, 0, 0, 2)]
    );
    // Never used ones come before the one just given back.
    for (n, want) in [
        (3, "10.0.0.4"),
        (4, "10.0.0.5"),
        (5, "10.0.0.6"),
        (6, "10.0.0.2"),
    ] {
        assert_eq!(add(&store, &pool, n), want);
    }
    // Given back 5, 3, 4: reused in that order.
    for n in [5, 3, 4] {
        store.release(&key(n)).unwrap();
    }
    for (n, want) in [(7, "10.0.0.6"), (8, "10.0.0.4"), (9, "10.0.0.5")] {
        assert_eq!(add(&store, &pool, n), want);
    }
}

#[test]
fn exhaustion_says_pool_size_and_holders() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/30"));
    add(&store, &pool, 1);
    let error = store.reserve(&pool, &record(2)).unwrap_err();
    let IpamError::Exhausted {
        pool: text,
        size,
        holders,
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((text.as_str(), size, holders), ("10.0.0.0/30", 1, 1));
    assert_eq!(
        store.usage(&pool).unwrap(),
        Usage {
            size: 1,
            holders: 1,
            free: 0
        }
    );
    store.release(&key(1)).unwrap();
    assert_eq!(add(&store, &pool, 2), "10.0.0.2");
}

#[test]
fn the_same_attachment_gets_the_same_address() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let first = store.reserve(&pool, &record(1)).unwrap();
    let again = store.reserve(&pool, &record(1)).unwrap();
    assert_eq!(
        again,
        Reservation {
            fresh: false,
            ..first
        }
    );
    assert_eq!(store.usage(&pool).unwrap().holders, 1);
    let other = Key {
        ifname: "eth1".into(),
        ..key(1)
    };
    assert_ne!(add(&store, &pool, 2), first.address.to_string());
    assert_eq!(store.find(&key(1)).unwrap(), Some(first.address));
    assert_eq!(store.find(&other).unwrap(), None);
}

#[test]
fn release_is_repeatable_and_never_creates_anything() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    assert!(store.release(&key(1)).unwrap().is_empty());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    add(&store, &pool, 1);
    assert_eq!(store.release(&key(1)).unwrap().len(), 1);
    assert!(store.release(&key(1)).unwrap().is_empty());
}

#[test]
fn networks_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.0.0.0/24");
    let other = Store::of_boot(dir.path(), "other", "boot-1");
    assert_eq!(add(&store(&dir), &pool, 1), "10.0.0.2");
    assert_eq!(add(&other, &pool, 1), "10.0.0.2");
    other.release(&key(1)).unwrap();
    assert!(store(&dir).find(&key(1)).unwrap().is_some());
}

#[test]
fn records_of_another_boot_are_leftovers() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.0.0.0/30");
    add(&store(&dir), &pool, 1);
    let next = Store::of_boot(dir.path(), "seaway", "boot-2");
    assert_eq!(next.find(&key(1)).unwrap(), None);
    assert_eq!(add(&next, &pool, 2), "10.0.0.2");
    assert!(!dir.path().join("seaway/boot-1").exists());
}

#[test]
fn a_lost_or_damaged_order_costs_only_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    let mut seen = BTreeSet::from([add(&store, &pool, 1), add(&store, &pool, 2)]);
    let order = dir.path().join("seaway/boot-1/.order");
    for (n, damage) in [
        (3, &b""[..]),
        (4, b"{"),
        (5, b"{\"fresh\":\"10.0.0.6\",\"released\":[]}"),
    ] {
        std::fs::write(&order, damage).unwrap();
        assert!(
            seen.insert(add(&store, &pool, n)),
            "an address was given twice"
        );
    }
    assert_eq!(seen.len(), 5);
}

#[test]
fn what_a_killed_process_leaves_is_swept_and_foreign_files_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    add(&store, &pool, 1);
    let records = dir.path().join("seaway/boot-1");
    std::fs::write(records.join(".new-123"), "{\"addr").unwrap();
    std::fs::write(records.join("README"), "mine").unwrap();
    // An empty record still holds its address.
    std::fs::write(records.join("10.0.0.3=c9:eth0"), "").unwrap();
    assert_eq!(add(&store, &pool, 2), "10.0.0.4");
    assert!(!records.join(".new-123").exists() && records.join("README").exists());
    assert_eq!(
        store.release(&key(9)).unwrap(),
        [Ipv4Addr::new(10, 0, 0, 3)]
    );
}

#[test]
fn a_changed_pool_keeps_old_addresses_until_they_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, old, new) = (store(&dir), pool("10.0.0.0/29"), pool("10.9.0.0/29"));
    add(&store, &old, 1);
    assert_eq!(add(&store, &new, 2), "10.9.0.2");
    assert_eq!(
        store.find(&key(1)).unwrap(),
        Some(Ipv4Addr::new(10, 0, 0, 2))
    );
    assert_eq!(
        store.usage(&new).unwrap(),
        Usage {
            size: 5,
            holders: 2,
            free: 4
        }
    );
    // An ADD that was not finished under the old pool gets a new address.
    assert_eq!(add(&store, &new, 1), "10.9.0.3");
    assert_eq!(store.usage(&new).unwrap().holders, 2);
}

#[test]
fn parallel_reservations_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let worker = |from: usize| {
        let (store, pool) = (store.clone(), pool.clone());
        move || -> Vec<Ipv4Addr> {
            let mut got = Vec::new();
            for n in from..from + 60 {
                got.push(store.reserve(&pool, &record(n)).unwrap().address);
                if n % 3 == 0 {
                    store.release(&key(n)).unwrap();
                    got.pop();
                }
            }
            got
        }
    };
    let threads: Vec<_> = [0, 100, 200, 300]
        .into_iter()
        .map(|n| std::thread::spawn(worker(n)))
        .collect();
    let all: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(all.len(), 160);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 160);
    assert_eq!(store.usage(&pool).unwrap().holders, 160);
}
