//! An API server that has forgotten versions, or comes back with those of a backup.

use std::time::{Duration, Instant};

use seaway_testbed::fake_api::{Ahead, FakeApi, Gone, NODES, SERVICES, SLICES};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{require_root, short_or_long};

use super::{BETWEEN_LOOKS, Loaded, NAMES, PODS, put};
use crate::load::pause_until;
use crate::{service, slice};

const LATE: (&str, &str) = ("late", "10.96.0.5");

/// Lists of a kind so far, and whether a watch was the last that was asked for.
fn asked(api: &FakeApi, kind: &str) -> (usize, bool) {
    let mut requests = api.requests();
    requests.retain(|request| {
        let path = request.split('?').next();
        path.is_some_and(|path| path.ends_with(kind))
    });
    let is_watch = |request: &String| request.contains("watch=true");
    let lists = requests.iter().filter(|request| !is_watch(request));
    (lists.count(), requests.last().is_some_and(is_watch))
}

#[test]
fn what_the_api_server_has_forgotten_is_listed_and_nothing_flaps() {
    if !require_root() {
        return;
    }
    let l = Loaded::new();
    let kinds = [SERVICES, SLICES, NODES];
    let mut moved = false;
    for gone in [Gone::Event, Gone::Status] {
        // Nothing has changed, so nothing is written.
        let handles = l.handles();
        assert!(!handles.is_empty());
        let lists = kinds.map(|kind| asked(&l.w.api, kind).0);
        l.w.api.forget(gone);
        l.daemon.wait("new lists and watches", || {
            l.is_well();
            kinds.iter().zip(lists).all(|(kind, before)| {
                let (lists, watched) = asked(&l.w.api, kind);
                lists > before && watched
            })
        });
        // A round would have come within it.
        pause_until(Instant::now() + Duration::from_secs(1));
        assert_eq!(l.handles(), handles, "{gone:?}: {}", l.daemon.log());
        // No watch tells of this.
        l.w.api.forget(gone);
        moved = !moved;
        put(&l.w.api, moved);
        l.until_it_follows(moved, Instant::now());
    }
    l.end();
}

/// With `SEAWAY_LONG` also one that takes watches from versions that it has not come to and
/// tells them nothing, as API servers do.
#[test]
fn an_api_server_that_was_restored_from_a_backup_is_followed_back() {
    const WAYS: [(Ahead, Duration); 2] = [
        (Ahead::Refused, Duration::ZERO),
        (Ahead::Silent, Duration::from_secs(90)),
    ];
    if !require_root() {
        return;
    }
    let l = Loaded::new();
    for &(ahead, away) in short_or_long(&WAYS[..1], &WAYS[..]) {
        let backup = l.w.api.backup();
        put(&l.w.api, true);
        l.until_it_follows(true, Instant::now());
        l.w.api.down();
        let down = Instant::now();
        l.w.api.restore(&backup, ahead);
        // It has versions that the daemon has seen with something else.
        l.w.api.apply(SERVICES, service(LATE.0, LATE.1));
        l.w.api.apply(SLICES, slice(LATE.0, PODS[0]));
        while down.elapsed() < away {
            l.is_well();
            pause_until(Instant::now() + BETWEEN_LOOKS);
        }
        l.w.api.up();
        l.until_it_follows(false, Instant::now());
        l.daemon.wait("what came after the backup", || {
            l.w.ask(Protocol::Tcp, &format!("{}:80", LATE.1)) == NAMES[0]
        });
        // And from there on.
        for moved in [true, false] {
            put(&l.w.api, moved);
            l.until_it_follows(moved, Instant::now());
        }
        l.w.api.delete(SERVICES, service(LATE.0, LATE.1));
        l.daemon.wait("its end", || !l.w.node.has_rule(LATE.1));
        l.w.api.delete(SLICES, slice(LATE.0, PODS[0]));
    }
    l.end();
}
