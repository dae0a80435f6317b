//! An API server that is away for long, refuses, forgets, or comes back with another history.
//! The oracles are connections through Service addresses, `iptables-save`, `nft` and /proc.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{require_root, short_or_long};

use crate::load::{Load, pause_until};
use crate::node::Daemon;
use crate::wide::Wide;
use crate::{fill, service, slice};

#[path = "api_away/histories.rs"]
mod histories;
#[path = "api_away/token.rs"]
mod token;

const PODS: [&str; 2] = ["10.244.0.5", "10.244.0.6"];
const NAMES: [&str; 2] = ["web", "moved"];
/// Always there, with the first pod.
const WEB: &str = "10.96.0.1:80";
/// Always there, with one of the pods.
const MOVES: &str = "10.96.0.2:80";
/// One of them is there, with the first pod.
const EITHER: [(&str, &str); 2] = [("east", "10.96.0.3"), ("west", "10.96.0.4")];

/// However long nobody answered, ten seconds is the longest pause; the rest is for the list, the
/// round, and a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// The longest pause of any of the three watches, and some more.
const LONGEST_PAUSE: Duration = Duration::from_secs(12);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// A node with the daemon, under load.
struct Loaded {
    w: Wide,
    daemon: Daemon,
    load: Load,
    _servers: [Server; 2],
}

/// What a daemon takes.
struct Weight {
    threads: usize,
    files: usize,
    memory_kib: u64,
    lines: usize,
}

/// One of two states of the API: one Service's endpoint, and which one of two others is there.
fn put(api: &FakeApi, moved: bool) {
    let (here, gone) = (EITHER[usize::from(moved)], EITHER[usize::from(!moved)]);
    api.apply(SLICES, slice("moves", PODS[usize::from(moved)]));
    api.apply(SERVICES, service(here.0, here.1));
    api.apply(SLICES, slice(here.0, PODS[0]));
    api.delete(SERVICES, service(gone.0, gone.1));
    api.delete(SLICES, slice(gone.0, PODS[0]));
}

impl Loaded {
    fn new() -> Self {
        let w = Wide::new();
        fill(&w.api);
        w.api.apply(SERVICES, service("moves", "10.96.0.2"));
        put(&w.api, false);
        let serve = |n: usize| {
            let address = format!("{}:8080", PODS[n]);
            w.node.netns.serve(Protocol::Tcp, &address, NAMES[n])
        };
        let servers = [serve(0), serve(1)];
        let daemon = w.start(&[]);
        let load = Load::start(&w.client, &[WEB, MOVES]);
        Self {
            w,
            daemon,
            load,
            _servers: servers,
        }
    }

    /// Nobody has noticed anything so far.
    #[track_caller]
    fn is_well(&self) {
        let failures = self.load.failures();
        assert!(failures.is_empty(), "{failures:#?}\n{}", self.daemon.log());
        for path in ["/healthz", "/livez"] {
            let (code, body) = self.w.node.get(path).unwrap();
            assert_eq!(code, 200, "{path}: {body}");
        }
    }

    /// Whether the kernel is as [`put`] wants it.
    fn follows(&self, moved: bool) -> bool {
        let (here, gone) = (EITHER[usize::from(moved)].1, EITHER[usize::from(!moved)].1);
        let rules = self.w.node.rules().concat();
        let ask = |address: &str| self.w.ask(Protocol::Tcp, address);
        rules.contains(&format!("{here}/32"))
            && !rules.contains(&format!("{gone}/32"))
            && ask(MOVES) == NAMES[usize::from(moved)]
            && ask(&format!("{here}:80")) == NAMES[0]
    }

    /// Waits for that; `since` then the daemon could have known.
    #[track_caller]
    fn until_it_follows(&self, moved: bool, since: Instant) {
        self.daemon.wait("what has changed", || {
            self.is_well();
            self.follows(moved)
        });
        let took = since.elapsed();
        assert!(took < SOON, "{took:?}\n{}", self.daemon.log());
    }

    fn weight(&self) -> Weight {
        let proc = PathBuf::from(format!("/proc/{}", self.daemon.pid()));
        let count = |dir: &str| fs::read_dir(proc.join(dir)).unwrap().count();
        let status = fs::read_to_string(proc.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = resident.unwrap().split_whitespace().next();
        Weight {
            threads: count("task"),
            files: count("fd"),
            memory_kib: memory.unwrap().parse().unwrap(),
            lines: self.daemon.log().lines().count(),
        }
    }

    /// A rule that is written again has another handle.
    fn handles(&self) -> Vec<String> {
        let words = ["nft", "-s", "-a", "list", "ruleset"];
        let rules = self.w.node.netns.must_run(&words);
        let handles = rules
            .lines()
            .filter_map(|line| line.split_once("# handle "));
        handles.map(|(_, handle)| handle.to_owned()).collect()
    }

    fn end(self) {
        let answered = self.load.end();
        assert!(answered > 0);
        assert_eq!(self.daemon.terminate().code(), Some(0));
    }
}

/// A quarter of a minute; with `SEAWAY_LONG` an hour.
#[test]
fn an_api_server_that_is_away_for_long_costs_nothing_and_is_followed_within_seconds() {
    if !require_root() {
        return;
    }
    let l = Loaded::new();
    let rules = l.w.node.rules();
    let away = short_or_long(Duration::from_secs(15), Duration::from_hours(1));
    l.w.api.down();
    let down = Instant::now();
    l.daemon.wait_said(&["Cannot watch the API server"]);
    // It happens unseen.
    put(&l.w.api, true);
    let before = l.weight();
    while down.elapsed() < away {
        l.is_well();
        assert_eq!(l.w.node.rules(), rules, "{}", l.daemon.log());
        pause_until(Instant::now() + BETWEEN_LOOKS);
    }
    let (after, tries) = (l.weight(), l.w.api.turned_away());
    l.w.api.up();
    l.until_it_follows(true, Instant::now());
    // Three watches say it twice a minute, and each once how it was cut off.
    let lines = after.lines - before.lines;
    let halves = usize::try_from(away.as_secs() / 30).unwrap();
    assert!(lines <= 12 + 3 * halves, "{lines}\n{}", l.daemon.log());
    assert!(after.threads <= before.threads + 4, "{}", after.threads);
    let (memory, now) = (before.memory_kib, after.memory_kib);
    assert!(now <= memory + 8192, "{memory} KiB, now {now}");
    // They were as patient at the end as they should, and no more.
    let gaps = tries.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.max().expect("several tries");
    assert!(longest < LONGEST_PAUSE, "{longest:?}");
    let most = 3 * (usize::try_from(away.as_secs() / 5).unwrap() + 8);
    assert!(tries.len() <= most, "{} in {away:?}", tries.len());
    // Three connections, and one that may have been kept for events.
    l.daemon.wait("as few open files as ever", || {
        l.weight().files <= before.files + 4
    });
    l.end();
}

#[test]
fn an_api_server_that_refuses_is_told_and_followed_when_it_does_no_more() {
    if !require_root() {
        return;
    }
    let l = Loaded::new();
    let mut moved = false;
    for (status, reason) in [
        ("401 Unauthorized", "Unauthorized"),
        // What stands before a server that is away or about to be there says this one.
        ("503 Service Unavailable", "ServiceUnavailable"),
        ("429 Too Many Requests", "TooManyRequests"),
        ("403 Forbidden", "Forbidden"),
        ("500 Internal Server Error", "InternalServerError"),
    ] {
        let rules = l.w.node.rules();
        l.w.api.refuse(Some(status));
        l.w.api.break_off();
        let told = ["Cannot watch the API server", "EndpointSlices", reason];
        l.daemon.wait_said(&told);
        moved = !moved;
        put(&l.w.api, moved);
        l.is_well();
        assert_eq!(l.w.node.rules(), rules, "{status}");
        l.w.api.refuse(None);
        l.until_it_follows(moved, Instant::now());
    }
    l.end();
}
