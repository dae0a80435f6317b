//! A node whose daemon and programs can be killed at any write, and what the kernel holds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, wait_until, write_program};

use super::flows::{self, Flows, MOVED};
use super::points::Point;
use super::states::{self, STALE, STAYS};
use super::trace::Trace;
use crate::dual::{self, FLAGS};
use crate::load::Load;
use crate::node::{Daemon, Node};
use crate::{ours, pod};

/// Only what never comes takes as long.
const PATIENCE: Duration = Duration::from_mins(1);
const PROGRAMMED: [&str; 1] = ["Programmed all Services"];
/// What the node and the pod each want of new connections.
pub(super) const EACH_PER_SECOND: u32 = 100;

pub(super) struct Mortal {
    /// Before the namespace, so that they end first.
    _servers: Vec<Server>,
    flows: Flows,
    api: FakeApi,
    pod: Netns,
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
            _servers: (5..9).flat_map(|pod| serve(&node, pod)).collect(),
            flows: Flows::open(&node.netns),
            api: dual::api(&node),
            pod: pod::pod(&node),
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

    /// Two hundred new connections a second: half of them are the node's own, which come by
    /// OUTPUT, and half a pod's, which come by PREROUTING.
    pub(super) fn load(&self) -> [Load; 2] {
        [&self.node.netns, &self.pod].map(|from| Load::paced(from, &STAYS, EACH_PER_SECOND))
    }

    /// Has a flow from each client to where nobody will serve, and to the pod that stays. The
    /// latter's numbers.
    pub(super) fn send(&self, next: usize) -> Vec<String> {
        self.flows.send();
        assert_eq!(self.stale(next).len(), MOVED, "{}", self.flavour);
        self.staying()
    }

    /// Flows that lead where nobody is who serves in that state.
    pub(super) fn stale(&self, state: usize) -> Vec<String> {
        flows::answered_by(&self.node.netns, &STALE[state])
    }

    pub(super) fn staying(&self) -> Vec<String> {
        flows::answered_by(&self.node.netns, &["10.244.0.5", "fd00:244::5"])
    }

    fn memory(&self) -> PathBuf {
        self.node.path("run/route-localnet-is-ours")
    }

    /// Rules by chain and in their order, sets, and the sysctl with what remembers whose it is.
    pub(super) fn ours(&self) -> Vec<String> {
        let programs = ["iptables", "ip6tables"].map(|ip| format!("{ip}-{}", self.flavour));
        let rules = programs.map(|program| ours::rules(&self.node.netns, &program));
        let mut all = rules.concat();
        all.extend(ours::sets(&self.node.netns));
        if self.node.route_localnet() != "0" {
            all.push("route_localnet".to_owned());
        }
        if self.memory().exists() {
            all.push("the memory of route_localnet".to_owned());
        }
        all
    }

    /// Says what differs, of hundreds of lines.
    #[track_caller]
    pub(super) fn assert_is(&self, have: &[String], want: &[String], at: &str) {
        ours::assert_same(have, want, &format!("{} {at}", self.flavour));
    }
}
