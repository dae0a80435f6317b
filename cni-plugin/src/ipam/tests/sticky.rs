//! What is remembered of pods' addresses, and for how long.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv6Addr;
use std::time::{Duration, SystemTime};

use super::*;
use crate::ipam::sticky::REMEMBERED;

/// Where a store keeps its records, and where its memory.
struct Folders {
    records: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        Self {
            records: tempfile::tempdir().unwrap(),
            memory: tempfile::tempdir().unwrap(),
        }
    }

    fn store(&self) -> Store {
        store(&self.records).with_sticky(self.memory.path(), "seaway")
    }

    /// That an address was a pod's, so many seconds after all that is older.
    fn note(&self, name: &str, seconds: usize) {
        let dir = self.memory.path().join("seaway");
        std::fs::create_dir_all(&dir).unwrap();
        let seconds = Duration::from_secs(seconds.try_into().unwrap());
        let file = File::create(dir.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + seconds).unwrap();
    }

    /// Pods of before that are gone, one second after the other.
    fn note_jobs(&self, count: usize) {
        for n in 0..count {
            self.note(&job(n), 10 + n);
        }
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.memory.path().join("seaway")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

/// Behind all that the tests' pools give out by themselves.
fn job(n: usize) -> String {
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, n.try_into().unwrap());
    format!("{address}=default_job-{n}")
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

#[test]
fn a_memory_without_room_forgets_the_longest_unused_of_the_family() {
    let folders = Folders::new();
    // As an earlier build may have left it, which forgot nothing.
    folders.note_jobs(REMEMBERED + 100);
    folders.note("10.0.0.9=default_older", 1);
    let (store, pools) = (folders.store(), pools(&["10.0.0.0/24", "fd00::/64"]));
    let come = |n: usize| {
        let pod = format!("default/web-{n}");
        store.reserve(&pools, &pod_record(n, &pod), &[]).unwrap()
    };
    come(0);
    let names = folders.names();
    let gone = (0..REMEMBERED + 100).filter(|n| !names.contains(&job(*n)));
    let oldest: Vec<usize> = (0..PURGED_AT_ONCE).collect();
    assert_eq!(gone.collect::<Vec<_>>(), oldest);
    for n in 1..20 {
        come(n);
    }
    let names = folders.names();
    let v6 = names.iter().filter(|name| name.starts_with("fd00:"));
    let v6 = v6.count();
    let fits = REMEMBERED - PURGED_AT_ONCE..=REMEMBERED;
    assert!(fits.contains(&v6), "{v6}");
    assert!(names.contains(&job(REMEMBERED + 99)), "the latest");
    for (n, address) in (2..22).enumerate() {
        assert!(names.contains(&format!("fd00::{address:x}=default_web-{n}")));
    }
    // The other family has room, however old this one is.
    assert!(names.contains("10.0.0.9=default_older"));
}

#[test]
fn a_pod_that_lives_is_not_forgotten_and_what_is_forgotten_is_not_given_away() {
    let folders = Folders::new();
    let (store, pools) = (folders.store(), pools(&["fd00::/64"]));
    let come = |n: usize, pod: &str, wanted: &[IpAddr]| {
        let reserved = store.reserve(&pools, &pod_record(n, pod), wanted);
        reserved.map(|reserved| reserved.addresses[0])
    };
    let lives = come(1, "default/db-0", &[]).unwrap();
    let forgotten = come(2, "default/db-1", &[]).unwrap();
    // One has been here for longer than any other was remembered.
    folders.note(&format!("{lives}=default_db-0"), 1);
    folders.note_jobs(REMEMBERED - 1);
    let of_forgotten = folders.memory.path().join("seaway");
    std::fs::remove_file(of_forgotten.join(format!("{forgotten}=default_db-1"))).unwrap();
    assert_eq!(folders.names().len(), REMEMBERED);
    let mut others = BTreeSet::new();
    let mut come_and_go = |numbers: std::ops::Range<usize>| {
        for n in numbers {
            others.insert(come(n, &format!("default/web-{n}"), &[]).unwrap());
            store.release(&key(n)).unwrap();
        }
    };
    come_and_go(3..10);
    assert!(folders.names().len() < REMEMBERED, "some had to go");
    let taken = come(10, "default/web-10", &[forgotten]);
    assert!(matches!(taken, Err(IpamError::Taken { .. })), "{taken:?}");
    // It goes, and while it is away others have to be forgotten again.
    store.release(&key(1)).unwrap();
    come_and_go(11..11 + 2 * PURGED_AT_ONCE);
    assert!(!others.contains(&lives) && !others.contains(&forgotten));
    assert_eq!(come(100, "default/db-0", &[]).unwrap(), lives);
}

#[test]
fn where_no_other_address_is_left_the_longest_unused_is_given_away() {
    let folders = Folders::new();
    for (name, seconds) in [
        ("10.0.0.2=default_b", 5),
        ("10.0.0.3=default_c", 2),
        ("10.0.0.4=default_d", 4),
        ("10.0.0.5=default_e", 1),
        ("10.0.0.6=default_f", 3),
    ] {
        folders.note(name, seconds);
    }
    let (store, pool) = (folders.store(), pool("10.0.0.0/29"));
    let got: Vec<String> = (1..6).map(|n| add(&store, &pool, n)).collect();
    let oldest_first = ["10.0.0.5", "10.0.0.3", "10.0.0.6", "10.0.0.4", "10.0.0.2"];
    assert_eq!(got, oldest_first);
}
