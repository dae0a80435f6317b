//! What is said when no address is left.

use super::*;
use crate::error::Error;

fn holders(count: usize, named: &[&str]) -> Holders {
    Holders {
        count,
        named: named.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The error of one ADD too many, and what a runtime is told of it.
#[track_caller]
fn refused(store: &Store, pools: &Pools) -> (Holders, String) {
    let error = store.reserve(pools, &record(999), &[]).unwrap_err();
    let IpamError::Exhausted { holders, .. } = &error else {
        panic!("{error:?}")
    };
    (holders.clone(), Error::from(error).to_string())
}

#[test]
fn exhaustion_says_pool_size_and_holders() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/30"));
    let free = |holders| Usage {
        pool: "10.0.0.0/30".into(),
        size: 1,
        holders,
        free: 1,
    };
    assert_eq!(store.usage(&pool).unwrap(), [free(holders(0, &[]))]);
    add(&store, &pool, 1);
    let only = holders(1, &["container c1:eth0"]);
    let text = "no free address in 10.0.0.0/30: all 1 are taken, \
         by 1 attachments: container c1:eth0";
    assert_eq!(refused(&store, &pool), (only.clone(), text.to_owned()));
    let full = Usage {
        free: 0,
        ..free(only)
    };
    assert_eq!(store.usage(&pool).unwrap(), [full]);
    store.release(&key(1)).unwrap();
    assert_eq!(add(&store, &pool, 2), "10.0.0.2");
}

#[test]
fn exhaustion_counts_holders_within_the_pool_and_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (store, old, new) = (store(&dir), pool("10.9.0.0/24"), pool("10.244.0.0/29"));
    for n in 1..8 {
        add(&store, &old, n);
    }
    for n in 11..16 {
        let record = pod_record(n, &format!("default/web-{n}"));
        store.reserve(&new, &record, &[]).unwrap();
    }
    // Damaged: its name says all the same who has the address.
    std::fs::write(dir.path().join("seaway/boot-1/10.244.0.3=c12:eth0"), "{").unwrap();
    let named = [
        "default/web-11 (container c11:eth0)",
        "container c12:eth0",
        "default/web-13 (container c13:eth0)",
    ];
    let (full, text) = refused(&store, &new);
    assert_eq!(full, holders(5, &named));
    assert_eq!(
        text,
        format!(
            "no free address in 10.244.0.0/29: all 5 are taken, by 5 attachments: {}, …",
            named.join(", ")
        )
    );
    // STATUS says the same.
    let usage = store.usage(&new).unwrap();
    assert_eq!((&usage[0].holders, usage[0].free), (&full, 0));
    let usage = store.usage(&old).unwrap();
    assert_eq!(usage[0].holders, holders(7, &[]), "nobody asks who");
}

#[test]
fn an_attachment_with_two_records_in_a_pool_is_one_holder() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pool) = (store(&dir), pool("10.0.0.0/29"));
    add(&store, &pool, 1);
    // An ADD that wanted this one was killed before it gave the other back.
    std::fs::write(dir.path().join("seaway/boot-1/10.0.0.3=c1:eth0"), "{}").unwrap();
    for n in 4..7 {
        add(&store, &pool, n);
    }
    let named = ["c1", "c4", "c5"].map(|id| format!("container {id}:eth0"));
    let (full, _text) = refused(&store, &pool);
    assert_eq!((full.count, &full.named[..]), (4, &named[..]));
}
