//! Which addresses an attachment gets, and when there is none.

use std::collections::BTreeSet;

use super::*;

#[test]
fn case_53_addresses_are_unique_and_reused_least_recently_used() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    assert_eq!(add(&store, &pool, 1), "10.0.0.2");
    assert_eq!(add(&store, &pool, 2), "10.0.0.3");
    assert_eq!(store.release(&key(1)).unwrap(), [ip("10.0.0.2")]);
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
fn the_same_attachment_gets_the_same_address() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let first = store.reserve(&pool, &record(1), &[]).unwrap();
    let again = store.reserve(&pool, &record(1), &[]).unwrap();
    assert_eq!(
        again,
        Reservation {
            fresh: false,
            ..first.clone()
        }
    );
    assert_eq!(store.usage(&pool).unwrap()[0].holders.count, 1);
    let other = Key {
        ifname: "eth1".into(),
        ..key(1)
    };
    assert_ne!(add(&store, &pool, 2), first.addresses[0].to_string());
    assert_eq!(store.find(&key(1)).unwrap(), first.addresses);
    assert_eq!(store.find(&other).unwrap(), Vec::<IpAddr>::new());
}

#[test]
fn case_54_a_changed_pool_keeps_old_addresses_until_they_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, old, new) = (store(&dir), pool("10.0.0.0/29"), pool("10.9.0.0/29"));
    add(&store, &old, 1);
    assert_eq!(add(&store, &new, 2), "10.9.0.2");
    assert_eq!(store.find(&key(1)).unwrap(), [ip("10.0.0.2")]);
    assert_eq!(
        store.usage(&new).unwrap(),
        [Usage {
            pool: "10.9.0.0/29".into(),
            size: 5,
            holders: Holders {
                count: 1,
                named: Vec::new()
            },
            free: 4
        }]
    );
    // An ADD that was not finished under the old pool gets a new address.
    let again = store.reserve(&new, &record(1), &[]).unwrap();
    assert_eq!(again.addresses, [ip("10.9.0.3")]);
    assert!(!again.fresh);
    assert_eq!(store.usage(&new).unwrap()[0].holders.count, 2);
}

#[test]
fn parallel_reservations_are_unique() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let worker = |from: usize| {
        let (store, pool) = (store.clone(), pool.clone());
        move || -> Vec<IpAddr> {
            let mut got = Vec::new();
            for n in from..from + 60 {
                got.push(store.reserve(&pool, &record(n), &[]).unwrap().addresses[0]);
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
    assert_eq!(store.usage(&pool).unwrap()[0].holders.count, 160);
}

#[test]
fn both_families_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (store(&dir), pools(&["10.0.0.0/29", "fd00::/126"]));
    let both = store.reserve(&pools, &record(1), &[]).unwrap();
    assert_eq!(both.addresses, [ip("10.0.0.2"), ip("fd00::2")]);
    assert_eq!(store.find(&key(1)).unwrap(), both.addresses);
    store.reserve(&pools, &record(2), &[]).unwrap();
    let error = store.reserve(&pools, &record(3), &[]).unwrap_err();
    let IpamError::Exhausted { pool, size, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((pool.as_str(), size), ("fd00::/126", 2));
    assert_eq!(store.find(&key(3)).unwrap(), Vec::<IpAddr>::new());
    assert_eq!(store.usage(&pools).unwrap()[0].free, 3);
    assert_eq!(store.release(&key(1)).unwrap().len(), 2);
    let again = store.reserve(&pools, &record(3), &[]).unwrap();
    assert_eq!(again.addresses[1], ip("fd00::2"));
}

#[test]
fn a_reservation_killed_between_the_families_is_completed_or_released() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pools) = (store(&dir), pools(&["10.0.0.0/29", "fd00::/64"]));
    store.reserve(&pools, &record(1), &[]).unwrap();
    std::fs::remove_file(dir.path().join("seaway/boot-1/fd00::2=c1:eth0")).unwrap();
    let again = store.reserve(&pools, &record(1), &[]).unwrap();
    assert_eq!(again.addresses, [ip("10.0.0.2"), ip("fd00::3")]);
    assert!(!again.fresh);
    std::fs::remove_file(dir.path().join("seaway/boot-1/10.0.0.2=c1:eth0")).unwrap();
    assert_eq!(store.release(&key(1)).unwrap(), [ip("fd00::3")]);
}

#[test]
fn wanted_addresses_are_given_exactly_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let wanted = [ip("10.0.0.77")];
    let got = store.reserve(&pool, &record(1), &wanted).unwrap();
    assert_eq!(got.addresses, wanted);
    let error = store.reserve(&pool, &record(2), &wanted).unwrap_err();
    assert!(matches!(error, IpamError::Taken { holder, .. } if holder == key(1)));
    for outside in ["10.0.0.1", "10.0.1.7", "fd00::7"] {
        let error = store.reserve(&pool, &record(2), &[ip(outside)]);
        assert!(matches!(error, Err(IpamError::OutOfRange { .. })));
    }
    assert_eq!(store.find(&key(2)).unwrap(), Vec::<IpAddr>::new());
    // Chosen by somebody else, so from outside of our ranges.
    let claimed = store.claim(&record(3), &[ip("192.0.2.1")]).unwrap();
    assert_eq!(claimed.addresses, [ip("192.0.2.1")]);
    assert!(store.claim(&record(4), &[ip("192.0.2.1")]).is_err());
}
