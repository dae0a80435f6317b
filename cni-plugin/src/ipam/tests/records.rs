//! What lies in the folder: of whom, since when, damaged or foreign.

use std::collections::BTreeSet;

use super::*;

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
    assert_eq!(next.usage(&pool).unwrap()[0].holders.count, 0);
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
