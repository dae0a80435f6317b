use std::collections::BTreeSet;

use super::*;

fn store(dir: &tempfile::TempDir) -> Store {
    Store::of_boot(dir.path(), "seaway", "boot-1")
}

fn pool(range: &str) -> Pools {
    pools(&[range])
}

fn pools(ranges: &[&str]) -> Pools {
    let spec = |range: &&str| RangeSpec::whole(range.parse().unwrap());
    Pools::new(&ranges.iter().map(spec).collect::<Vec<_>>()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
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
        extras: Vec::new(),
        host_ports: Vec::new(),
        ipam: None,
    }
}

#[track_caller]
fn add(store: &Store, pool: &Pools, n: usize) -> String {
    let got = store.reserve(pool, &record(n), &[]).unwrap();
    assert!(got.fresh);
    got.addresses[0].to_string()
}

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
fn exhaustion_says_pool_size_and_holders() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/30"));
    add(&store, &pool, 1);
    let error = store.reserve(&pool, &record(2), &[]).unwrap_err();
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
        [Usage {
            pool: "10.0.0.0/30".into(),
            size: 1,
            holders: 1,
            free: 0
        }]
    );
    store.release(&key(1)).unwrap();
    assert_eq!(add(&store, &pool, 2), "10.0.0.2");
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
    assert_eq!(store.usage(&pool).unwrap()[0].holders, 1);
    let other = Key {
        ifname: "eth1".into(),
        ..key(1)
    };
    assert_ne!(add(&store, &pool, 2), first.addresses[0].to_string());
    assert_eq!(store.find(&key(1)).unwrap(), first.addresses);
    assert_eq!(store.find(&other).unwrap(), Vec::<IpAddr>::new());
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
    assert!(store(&dir).find(&key(1)).unwrap() == [ip("10.0.0.2")]);
}

#[test]
fn case_49_records_of_another_boot_are_ignored_and_go_a_few_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.0.0.0/24");
    for n in 0..200 {
        add(&store(&dir), &pool, n);
    }
    let old = dir.path().join("seaway/boot-1");
    let left = || std::fs::read_dir(&old).into_iter().flatten().count();
    let before = left();
    assert!(before >= 200);
    let next = Store::of_boot(dir.path(), "seaway", "boot-2");
    assert_eq!(next.find(&key(1)).unwrap(), Vec::<IpAddr>::new());
    assert_eq!(next.usage(&pool).unwrap()[0].holders, 0);
    assert_eq!(add(&next, &pool, 1), "10.0.0.2");
    assert_eq!(before - left(), 16, "none waits for all of them");
    for n in 2..20 {
        add(&next, &pool, n);
    }
    assert!(!old.exists());
}

#[test]
fn case_49_what_cannot_be_removed_of_another_boot_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("seaway/boot-1/10.0.0.2=c1:eth0/x")).unwrap();
    let next = Store::of_boot(dir.path(), "seaway", "boot-2");
    assert_eq!(add(&next, &pool("10.0.0.0/30"), 1), "10.0.0.2");
}

#[test]
fn a_lost_or_damaged_order_costs_only_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    let mut seen = BTreeSet::from([add(&store, &pool, 1), add(&store, &pool, 2)]);
    let order = dir.path().join("seaway/boot-1/.order-v4");
    for (n, damage) in [
        (3, &b""[..]),
        (4, &[10]),
        (5, &[10, 0, 0, 6, 0, 0, 0, 0, 255, 255, 255]),
    ] {
        std::fs::write(&order, damage).unwrap();
        assert!(
            seen.insert(add(&store, &pool, n)),
            "an address was given twice"
        );
    }
    assert_eq!(seen.len(), 5);
}

/// Another call is writing it, and looking is done without the lock.
#[test]
fn looking_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    add(&store, &pool("10.0.0.0/29"), 1);
    let writing = dir.path().join("seaway/boot-1/.new-123");
    std::fs::write(&writing, "{").unwrap();
    assert_eq!(store.contents(&key(1)).unwrap().len(), 1);
    assert!(writing.exists());
}

#[test]
fn case_50_what_a_killed_process_leaves_is_swept_and_foreign_files_are_not() {
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
    assert_eq!(store.release(&key(9)).unwrap(), [ip("10.0.0.3")]);
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
            holders: 2,
            free: 4
        }]
    );
    // An ADD that was not finished under the old pool gets a new address.
    let again = store.reserve(&new, &record(1), &[]).unwrap();
    assert_eq!(again.addresses, [ip("10.9.0.3")]);
    assert!(!again.fresh);
    assert_eq!(store.usage(&new).unwrap()[0].holders, 2);
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
    assert_eq!(store.usage(&pool).unwrap()[0].holders, 160);
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
    assert!(
        matches!(&error, IpamError::Exhausted { pool, size: 2, holders: 2 } if pool == "fd00::/126"),
        "{error:?}"
    );
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

#[test]
fn contents_survive_and_damage_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    let wanted = Record {
        extras: vec![Extra::HostPorts],
        pod: Some("default/web".into()),
        ..record(1)
    };
    store.reserve(&pool, &wanted, &[]).unwrap();
    let contents = store.contents(&key(1)).unwrap();
    assert_eq!(contents, [(ip("10.0.0.2"), Some(wanted))]);
    for damage in [&b""[..], b"{", b"\xff\xfe", b"[]"] {
        std::fs::write(dir.path().join("seaway/boot-1/10.0.0.2=c1:eth0"), damage).unwrap();
        assert_eq!(store.contents(&key(1)).unwrap(), [(ip("10.0.0.2"), None)]);
    }
    assert_eq!(store.release(&key(1)).unwrap(), [ip("10.0.0.2")]);
}

#[test]
fn without_room_for_the_order_addresses_come_and_go_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/24"));
    // In its place is something that no file can replace.
    std::fs::create_dir_all(dir.path().join("seaway/boot-1/.order-v4/full")).unwrap();
    let reserved = store.reserve(&pool, &record(1), &[]).unwrap();
    assert_eq!(reserved.addresses, [ip("10.0.0.2")]);
    assert_eq!(store.release(&key(1)).unwrap(), [ip("10.0.0.2")]);
    assert_eq!(store.find(&key(1)).unwrap(), Vec::<IpAddr>::new());
    let names = std::fs::read_dir(dir.path().join("seaway/boot-1")).unwrap();
    assert_eq!(names.count(), 1, "no temporary file is left");
}

fn pod_record(n: usize, pod: &str) -> Record {
    Record {
        pod: Some(pod.to_owned()),
        ..record(n)
    }
}

#[test]
fn a_pod_that_comes_again_gets_its_address_and_others_leave_it_alone() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pools = pools(&["10.0.0.0/29", "fd00::/64"]);
    let at = |boot: &str| {
        Store::of_boot(dir.path(), "seaway", boot).with_sticky(memory.path(), "seaway")
    };
    let store = at("boot-1");
    let had = store
        .reserve(&pools, &pod_record(1, "default/db-0"), &[])
        .unwrap();
    store
        .reserve(&pools, &pod_record(2, "default/db-1"), &[])
        .unwrap();
    // After a boot, others come first.
    let store = at("boot-2");
    for n in 3..6 {
        let got = store.reserve(&pools, &record(n), &[]).unwrap().addresses;
        assert!(!had.addresses.contains(&got[0]) && !had.addresses.contains(&got[1]));
    }
    let again = store
        .reserve(&pools, &pod_record(6, "default/db-0"), &[])
        .unwrap();
    assert_eq!(again.addresses, had.addresses);
    // The last free one is db-1's: somebody is here, and db-1 is not.
    let last = store
        .reserve(&pools, &pod_record(7, "default/web"), &[])
        .unwrap();
    assert_eq!(last.addresses[0], ip("10.0.0.3"));
    store.release(&key(7)).unwrap();
    let store = at("boot-3");
    let first = store
        .reserve(&pools, &pod_record(8, "default/db-1"), &[])
        .unwrap();
    assert_ne!(first.addresses[0], ip("10.0.0.3"), "web has it now");
    // Names that are none are not remembered, and not written to strange places.
    store.reserve(&pools, &pod_record(9, "../x"), &[]).unwrap();
    let names = std::fs::read_dir(memory.path().join("seaway")).unwrap();
    assert_eq!(names.count(), 6);
}
