//! An API server that is away for long, refuses, forgets, or comes back with another history.
//! The oracles are connections through Service addresses, `iptables-save`, `nft` and /proc.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use seaway_testbed::fake_api::{Ahead, FakeApi, Gone, NODES, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{require_root, short_or_long};

use crate::load::{Load, pause_until};
use crate::node::{API, Daemon, HEALTHZ, Node};
use crate::wide::Wide;
use crate::{fill, service, slice};

const PODS: [&str; 2] = ["10.244.0.5", "10.244.0.6"];
const NAMES: [&str; 2] = ["web", "moved"];
/// Always there, with the first pod.
const WEB: &str = "10.96.0.1:80";
/// Always there, with one of the pods.
const MOVES: &str = "10.96.0.2:80";
/// One of them is there, with the first pod.
const EITHER: [(&str, &str); 2] = [("east", "10.96.0.3"), ("west", "10.96.0.4")];
const LATE: (&str, &str) = ("late", "10.96.0.5");

/// However long nobody answered, ten seconds is the longest pause; the rest is for the list, the
/// round, and a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// The longest pause of any of the three watches, and some more.
const LONGEST_PAUSE: Duration = Duration::from_secs(12);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// Where kubelet puts a pod's token; `/var/run` leads here.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

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

/// As in a pod: credentials are those of its service account. The server speaks no TLS, which
/// `--api-server` says.
fn in_cluster(node: &Node) -> Command {
    // What is written there must not be seen outside.
    let account = fs::canonicalize("/var/run").unwrap();
    assert_eq!(account, PathBuf::from("/run"));
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    node.mount_file(&format!("{ACCOUNT}/ca.crt"), &authority.pem());
    node.mount_file(&format!("{ACCOUNT}/namespace"), "kube-system");
    let mut command = node.command("run");
    command.env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    command.env("KUBERNETES_SERVICE_PORT", "443");
    command.args(["--api-server", &format!("http://{API}")]);
    command.args(["--node-name", "a", "--service-proxy", "iptables"]);
    command.args(["--pod-network", "off", "--healthz-bind-address", HEALTHZ]);
    command
}

#[test]
fn a_service_accounts_token_that_kubelet_has_replaced_is_used_at_once() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let mount = |token: &str| node.mount_file(&format!("{ACCOUNT}/token"), token);
    mount("first");
    api.take_token("first");
    let daemon = node.launch(&mut in_cluster(&node));
    daemon.wait_said(&["Programmed all Services"]);
    let follows = |pod: &str| {
        let since = Instant::now();
        api.apply(SLICES, slice("web", pod));
        let rule = format!("{pod}:8080");
        daemon.wait("the change", || node.has_rule(&rule));
        let took = since.elapsed();
        assert!(took < SOON, "{took:?}\n{}", daemon.log());
    };

    // kubelet is early: the old one is still good for a while, but not for the next watch.
    mount("second");
    api.take_token("second");
    api.break_off();
    follows("10.244.0.6");
    assert_eq!(daemon.said(&["Unauthorized"]), 0, "{}", daemon.log());

    // kubelet is late.
    api.take_token("third");
    api.break_off();
    daemon.wait_said(&["Cannot watch the API server", "Unauthorized"]);
    assert!(node.has_rule("10.244.0.6:8080"), "{:?}", node.rules());
    assert_eq!(node.get("/healthz").unwrap().0, 200);
    mount("third");
    follows("10.244.0.7");
    assert_eq!(daemon.terminate().code(), Some(0));
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
