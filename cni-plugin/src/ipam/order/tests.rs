use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::ipam::{Pools, RangeSpec};

fn pool(range: &str) -> Pool {
    let spec = RangeSpec::whole(range.parse().unwrap());
    let pools = Pools::new(&[spec]).unwrap();
    pools.iter().next().unwrap().clone()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The next one when these are taken.
fn next(dir: &Path, pool: &Pool, taken: &[&str]) -> Option<IpAddr> {
    let taken = taken.iter().map(|text| ip(text)).collect();
    let mut order = Order::default();
    let address = order.next(dir, pool, &taken, &BTreeSet::new());
    order.write();
    address
}

fn nth(pool: &Pool, place: usize) -> IpAddr {
    pool.after(None).nth(place).unwrap()
}

/// It took a third of an `ADD` on a node that had seen some thousand pods.
#[test]
fn a_new_address_moves_nothing_of_what_was_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.0.0.0/16");
    give_back(dir.path(), pool.after(None).take(3000));
    let file = dir.path().join(name(true));
    let before = (std::fs::read(&file).unwrap(), file.metadata().unwrap());
    assert_eq!(next(dir.path(), &pool, &[]), Some(nth(&pool, 3000)));
    let after = (std::fs::read(&file).unwrap(), file.metadata().unwrap());
    assert_eq!(before.0[4..], after.0[4..]);
    assert_eq!(before.1.ino(), after.1.ino());
    assert!(after.1.len() <= 4 * 3001, "four bytes for each");
}

#[test]
fn the_memory_stays_short_and_keeps_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    for (range, width) in [("10.0.0.0/16", 4), ("fd00::/64", 16)] {
        let pool = pool(range);
        let count = 3 * 2 * REMEMBERED_BYTES / width;
        let mut longest = 0;
        for address in pool.after(None).take(count) {
            give_back(dir.path(), [address]);
            let size = dir.path().join(name(width == 4)).metadata().unwrap().len();
            longest = longest.max(size);
        }
        assert!(
            longest <= (2 * REMEMBERED_BYTES + width) as u64,
            "{longest}"
        );
        let memory = Memory::read(dir.path(), width == 4);
        let left: Vec<IpAddr> = memory.released().map(|(_, address)| address).collect();
        assert!(left.len() >= REMEMBERED_BYTES / width);
        let latest = pool.after(None).take(count).skip(count - left.len());
        assert_eq!(left, latest.collect::<Vec<_>>());
    }
}

#[test]
fn one_that_was_given_back_twice_counts_once_and_as_the_later() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool("10.0.0.0/29");
    for address in ["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.4"] {
        give_back(dir.path(), [ip(address)]);
    }
    let taken = ["10.0.0.5", "10.0.0.6"];
    for want in ["10.0.0.3", "10.0.0.2", "10.0.0.4"] {
        assert_eq!(next(dir.path(), &pool, &taken), Some(ip(want)));
        if want == "10.0.0.2" {
            give_back(dir.path(), [ip(want)]);
        }
    }
    let memory = Memory::read(dir.path(), true);
    let left = Memory {
        bytes: memory.shortened(),
        ..memory
    };
    let left: Vec<_> = left.released().map(|(_, address)| address).collect();
    assert_eq!(left, [ip("10.0.0.2")]);
}

#[test]
fn families_are_remembered_apart() {
    let dir = tempfile::tempdir().unwrap();
    let (v4, v6) = (pool("10.0.0.0/30"), pool("fd00::/126"));
    for (pool, first) in [(&v4, "10.0.0.2"), (&v6, "fd00::2")] {
        assert_eq!(next(dir.path(), pool, &[]), Some(ip(first)));
        give_back(dir.path(), [ip(first)]);
    }
    assert_eq!(next(dir.path(), &v6, &[]), Some(ip("fd00::3")));
    assert_eq!(next(dir.path(), &v6, &["fd00::3"]), Some(ip("fd00::2")));
    assert_eq!(next(dir.path(), &v4, &["10.0.0.2"]), None);
    assert_eq!(next(dir.path(), &v4, &[]), Some(ip("10.0.0.2")));
}
