//! A node whose daemon and programs can be killed at any write, and what the kernel holds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{wait_until, write_program};

use super::flows::{self, Flows, MOVED};
use super::points::Point;
use super::states::{self, MOVES};
use super::trace::Trace;
use crate::dual::{self, FLAGS};
use crate::node::{Daemon, Node};

/// Only what never comes takes as long.
const PATIENCE: Duration = Duration::from_mins(1);
const PROGRAMMED: [&str; 1] = ["Programmed all Services"];

pub(super) struct Mortal {
    /// Before the namespace, so that they end first.
    _servers: Vec<Server>,
    flows: Flows,
    api: FakeApi,
    pub(super) node: Node,
    pub(super) flavour: &'static str,
}

/// The pod listens at both addresses; it is on the node itself.
fn serve(node: &Node, pod: u8) -> Vec<Server> {
    if pod > 5 {
        node.netns.ip(&format!("addr add 10.244.0.{pod}/32 dev lo"));
        node.netns
            .ip(&format!("addr add fd00:244::{pod}/128 dev lo nodad"));
    }
    let mut servers = Vec::new();
    for address in [
        format!("10.244.0.{pod}:8080"),
        format!("[fd00:244::{pod}]:8080"),
    ] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            servers.push(node.netns.serve(protocol, &address, "web"));
        }
    }
    servers
}

impl Mortal {
    pub(super) fn new(flavour: &'static str) -> Self {
        let node = dual::node(flavour);
        let mortal = Self {
            _servers: (5..8).flat_map(|pod| serve(&node, pod)).collect(),
            flows: Flows::open(&node.netns),
            api: dual::api(&node),
            node,
            flavour,
        };
        mortal.wrap();
        mortal
    }

    /// Puts a script before each program that writes.
    fn wrap(&self) {
        let folder = self.node.path("bin");
        fs::create_dir(&folder).unwrap();
        let of = |ip: &str| format!("{ip}-{}-restore", self.flavour);
        for program in [of("iptables"), of("ip6tables"), "ipset".to_owned()] {
            let find = format!("command -v {program}");
            let real = self.node.netns.must_run(&["sh", "-c", &find]);
            let script = include_str!("program.sh")
                .replace("@folder@", &folder.display().to_string())
                .replace("@name@", &program)
                .replace("@real@", real.trim());
            write_program(&folder.join(program), &script);
        }
    }

    pub(super) fn change(&self, state: usize) {
        states::change(&self.api, state);
    }

    /// One that nothing happens to.
    pub(super) fn start(&self, state: usize) -> Daemon {
        self.start_at(state, None)
    }

    /// `at` is for the script.
    fn start_at(&self, state: usize, at: Option<&str>) -> Daemon {
        // What an earlier one has said is not its word.
        fs::remove_file(self.node.path("log")).ok();
        self.forget_script();
        if let Some(at) = at {
            fs::write(self.node.path("bin/at"), format!("{at}\n")).unwrap();
        }
        let flags = [&FLAGS[..], states::flags(state)].concat();
        self.node.start_with("iptables", &flags)
    }

    fn forget_script(&self) {
        fs::remove_file(self.node.path("bin/at")).ok();
    }

    /// A whole sync; what is there afterwards.
    pub(super) fn settle(&self, state: usize) -> Vec<String> {
        let daemon = self.start(state);
        daemon.wait_said(&PROGRAMMED);
        assert_eq!(daemon.terminate().code(), Some(0));
        self.ours()
    }

    /// A whole sync, and where it can be killed.
    pub(super) fn trace(&self, state: usize) -> Vec<Point> {
        let folder = self.node.path("bin");
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with("log.") || name.starts_with("in.") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let daemon = self.start_at(state, Some("trace"));
        daemon.wait_said(&PROGRAMMED);
        assert_eq!(daemon.terminate().code(), Some(0));
        self.forget_script();
        let trace = Trace {
            folder: &folder,
            memory: &self.memory(),
        };
        trace.points()
    }

    /// Starts a daemon that is killed there. False when it has not come there: how often a set
    /// is tried to be destroyed varies.
    pub(super) fn kill_at(&self, state: usize, point: &Point) -> bool {
        let mut daemon = self.start_at(state, Some(&point.to_string()));
        let what = format!("the end at {point}");
        let look = || {
            Ok(match (daemon.lives(), daemon.said(&PROGRAMMED)) {
                (false, _) => Ok(true),
                (true, 0) => Err(daemon.log()),
                (true, _) => Ok(false),
            })
        };
        let killed = wait_until(PATIENCE, &what, look).unwrap();
        self.forget_script();
        let (status, code) = if killed {
            (daemon.ended(), None)
        } else {
            (daemon.terminate(), Some(0))
        };
        assert_eq!(status.code(), code, "{} {point}", self.flavour);
        killed
    }

    /// Has a flow from each client to the pod that is about to go, and to the one that stays.
    /// The latter's numbers.
    pub(super) fn send(&self, next: usize) -> Vec<String> {
        self.flows.send();
        assert_eq!(self.stale(next).len(), MOVED, "{}", self.flavour);
        self.staying()
    }

    /// Flows that lead where nobody is who serves in that state.
    pub(super) fn stale(&self, state: usize) -> Vec<String> {
        flows::to_pod(&self.node.netns, MOVES[1 - state])
    }

    pub(super) fn staying(&self) -> Vec<String> {
        flows::to_pod(&self.node.netns, 5)
    }

    fn memory(&self) -> PathBuf {
        self.node.path("run/route-localnet-is-ours")
    }

    /// Rules by chain and in their order, sets, and the sysctl with what remembers whose it is.
    pub(super) fn ours(&self) -> Vec<String> {
        let mut all = self.rules("iptables");
        all.extend(self.rules("ip6tables"));
        all.extend(self.sets());
        if self.node.route_localnet() != "0" {
            all.push("route_localnet".to_owned());
        }
        if self.memory().exists() {
            all.push("the memory of route_localnet".to_owned());
        }
        all
    }

    /// Without counters, with their table, by chain.
    fn rules(&self, program: &str) -> Vec<String> {
        let save = format!("{program}-{}-save", self.flavour);
        let (dump, mut table) = (self.node.netns.must_run(&[save]), "");
        let mut rules = Vec::new();
        for line in dump.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = name;
            } else if line.contains("SEAWAY-") {
                let chain = line.split(' ').next().filter(|word| word.starts_with(':'));
                rules.push(format!("{program} {table} {}", chain.unwrap_or(line)));
            }
        }
        // Which chain was made first says nothing, nor which of our jumps was put first; which
        // rule of a chain comes first does.
        rules.sort_by_cached_key(|line| {
            let mut words = line.split(' ').skip(1);
            let table = words.next().map(str::to_owned);
            let chain = words.find(|word| *word != "-A").unwrap_or_default();
            let chain = chain.trim_start_matches(':').to_owned();
            let jump = (!chain.starts_with("SEAWAY-")).then(|| line.clone());
            (table, chain, jump)
        });
        rules
    }

    /// How they were made, but for the number that each kernel chooses for itself.
    fn sets(&self) -> Vec<String> {
        let words = ["ipset", "list", "-terse", "-output", "save"];
        let listed = self.node.netns.must_run(&words);
        let made = listed.lines().filter(|line| line.starts_with("create "));
        let made = made.map(|line| line.split(" initval ").next().unwrap().to_owned());
        let mut made: Vec<String> = made.collect();
        made.sort();
        made
    }

    /// Says what differs, of hundreds of lines.
    #[track_caller]
    pub(super) fn assert_is(&self, have: &[String], want: &[String], at: &str) {
        let missing: Vec<_> = want.iter().filter(|line| !have.contains(line)).collect();
        let odd: Vec<_> = have.iter().filter(|line| !want.contains(line)).collect();
        let flavour = self.flavour;
        let moved = have.iter().zip(want).find(|(have, want)| have != want);
        assert!(
            have == want,
            "{flavour} {at}: missing {missing:#?}, odd {odd:#?}, first in another place: {moved:#?}"
        );
    }
}
