//! Sets of clients that somebody empties, replaces or destroys under the daemon. The kernel
//! tells nobody of that; the oracle is `ipset`.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{XTABLES_WAIT, require_root};
use serde_json::json;

use crate::dual::{self, FLAGS};
use crate::explain::{check, explain_beside, status};
use crate::node::{Daemon, Node};

/// Far less than the six hours after which everything is read without a cause.
const IN_TIME: Duration = Duration::from_mins(2);
const VIPS: [&str; 2] = ["10.96.0.1:80", "[fd00:96::1]:80"];

/// A node with a Service in both families, whose clients come back.
struct Sticky {
    /// Before the namespace, so that they end first.
    _servers: [Server; 2],
    _api: FakeApi,
    node: Node,
}

impl Sticky {
    fn new(flavour: &str) -> Self {
        let node = dual::node(flavour);
        let at = ["10.244.0.5:8080", "[fd00:244::5]:8080"];
        let servers = at.map(|at| node.netns.serve(Protocol::Tcp, at, "web"));
        let api = dual::api(&node);
        let mut web = dual::service("web", ["10.96.0.1", "fd00:96::1"]);
        web["spec"]["sessionAffinity"] = json!("ClientIP");
        api.apply(SERVICES, web);
        let ready = |pods: &str| json!([{ "addresses": [format!("{pods}5")], "nodeName": "a" }]);
        for slice in dual::slices("web", ready) {
            api.apply(SLICES, slice);
        }
        Self {
            _servers: servers,
            _api: api,
            node,
        }
    }

    fn start(&self) -> Daemon {
        let daemon = self.node.start_with("iptables", &FLAGS);
        daemon.wait("the first sync", || status(&self.node).0 == 0);
        daemon
    }

    fn sh(&self, script: &str) -> String {
        self.node.netns.must_run(&["sh", "-c", script])
    }

    /// Names and how they were made, but for the number that each kernel chooses for itself.
    fn sets(&self) -> Vec<String> {
        let listed = self.sh("ipset list -terse -output save");
        let made = listed.lines().filter(|line| line.starts_with("create "));
        let made = made.map(|line| line.split(" initval ").next().unwrap().to_owned());
        let mut made: Vec<String> = made.collect();
        made.sort();
        made
    }

    /// How many clients are in them.
    fn clients(&self) -> usize {
        let saved = self.sh("ipset save");
        saved
            .lines()
            .filter(|line| line.starts_with("add "))
            .count()
    }

    fn explain(&self, vip: &str) -> (i32, String) {
        let (code, text, said) = explain_beside(&self.node, "iptables", &FLAGS, &[vip]);
        (code, format!("{text}{said}"))
    }

    #[track_caller]
    fn is_served(&self) {
        for vip in VIPS {
            let answer = self.node.ask(vip);
            assert!(answer.contains("web"), "{vip}: {answer}");
        }
        assert_eq!(self.clients(), VIPS.len());
    }

    fn repaired(&self) -> u64 {
        let (_, text, value) = status(&self.node);
        let repaired = value["serviceProxy"]["driftRepaired"].as_u64();
        repaired.unwrap_or_else(|| panic!("no number of repairs in {text}"))
    }
}

/// Puts a set that forgets after seven seconds in the place of one of ours.
fn replacement(made: &str) -> (String, [String; 2]) {
    let words: Vec<&str> = made.split(' ').collect();
    let (name, family) = (words[1], words[4]);
    let script = format!(
        "ipset create spare hash:ip family {family} timeout 7 && ipset swap spare {name} && \
         ipset destroy spare"
    );
    let named = [
        format!("wanted {name} timeout 10800"),
        format!("found {name} timeout 7"),
    ];
    (script, named)
}

#[test]
fn a_set_that_somebody_empties_is_not_amiss_and_fills_again() {
    if !require_root() {
        return;
    }
    let sticky = Sticky::new("nft");
    let _daemon = sticky.start();
    sticky.is_served();
    sticky.sh("ipset flush");
    assert_eq!(sticky.clients(), 0);
    for vip in VIPS {
        let (code, text) = sticky.explain(vip);
        assert_eq!(code, 0, "{text}");
        check(&text, &["set SEAWAY-", "--add-set SEAWAY-"]);
    }
    sticky.is_served();
    assert_eq!(sticky.repaired(), 0);
}

#[test]
fn a_set_that_somebody_replaces_is_named_and_repaired_after_it() {
    if !require_root() {
        return;
    }
    let sticky = Sticky::new("nft");
    let daemon = sticky.start();
    let made = sticky.sets();
    assert_eq!(made.len(), VIPS.len(), "{made:?}");
    for (set, vip) in made.iter().zip(VIPS) {
        let repaired = sticky.repaired();
        let (script, [wanted, found]) = replacement(set);
        let place = "different in the sets of clients: ";
        // The daemon may read the sets just then, so a look may come too late. What that
        // reading has repaired is counted as well.
        let mut said = String::new();
        let named = (0..3).any(|_| {
            sticky.sh(&script);
            let (code, text) = sticky.explain(vip);
            said = text;
            code == 1
        });
        assert!(named, "{said}");
        check(&said, &[place, &wanted, &found]);
        let asked = Instant::now();
        daemon.wait("the repair", || sticky.sets() == made);
        assert!(asked.elapsed() < IN_TIME, "{:?}", asked.elapsed());
        daemon.wait("the count", || sticky.repaired() > repaired);
        let (code, text) = sticky.explain(vip);
        assert_eq!(code, 0, "{text}");
    }
    sticky.is_served();
    // Without a daemon it stays, until the next one starts.
    daemon.end(Signal::SIGKILL);
    for (set, vip) in made.iter().zip(VIPS) {
        let (script, [wanted, found]) = replacement(set);
        sticky.sh(&script);
        let (code, text) = sticky.explain(vip);
        assert_eq!(code, 1, "{text}");
        check(&text, &["the daemon does not run", &wanted, &found]);
    }
    assert_ne!(sticky.sets(), made);
    let daemon = sticky.start();
    assert_eq!(sticky.sets(), made, "{}", daemon.log());
    sticky.is_served();
}

/// What leads to the sets has to go first, and that is noticed.
fn destroyed_sets_come_back(flavour: &str) {
    let sticky = Sticky::new(flavour);
    let daemon = sticky.start();
    sticky.is_served();
    let (sets, rules) = (sticky.sets(), dual::rules(&sticky.node, flavour));
    // Or it might be quicker.
    daemon.signal(Signal::SIGSTOP);
    sticky.sh(&format!(
        "set -e; for program in iptables ip6tables; do \
         nat=\"$program-{flavour} {XTABLES_WAIT} -t nat\"; $nat -F; $nat -X; done; \
         for try in $(seq 100); do ipset destroy && exit; sleep 0.05; done; exit 1"
    ));
    assert_eq!(sticky.sets(), [""; 0]);
    let started = Instant::now();
    daemon.signal(Signal::SIGCONT);
    daemon.wait("the rules", || dual::rules(&sticky.node, flavour) == rules);
    assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());
    assert_eq!(sticky.sets(), sets);
    sticky.is_served();
    daemon.wait("the count", || sticky.repaired() == 1);
}

#[test]
fn sets_that_somebody_destroys_come_back_with_their_rules_of_nft() {
    if require_root() {
        destroyed_sets_come_back("nft");
    }
}

#[test]
fn sets_that_somebody_destroys_come_back_with_their_rules_of_legacy() {
    if require_root() {
        destroyed_sets_come_back("legacy");
    }
}
