//! The daemon killed at every write of a sync, and left dead, under load.
//!
//! What a killed daemon leaves changes only with what its programs tell the kernel, so a
//! kill of both at each of those calls, before it is carried out, meets every state that
//! there is. Which they are is found by tracing a whole sync.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{require_root, skip, wait_until};
use serde_json::{Value, json};

use crate::load::{Load, pause_until};
use crate::node::{API, Daemon, Node};

const FLAGS: [&str; 4] = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];
/// Of two states of the API; the endpoint 10.244.0.5 is in both.
const STAYS: [&str; 2] = ["10.96.0.1:80", "10.96.0.3:80"];

/// A node whose programs can be killed at any call, with their daemon.
struct Mortal {
    node: Node,
    api: FakeApi,
    flavour: &'static str,
    _servers: Vec<Server>,
}

/// A call of a program that changes something: which program since the daemon's start,
/// the call's name, and its number among those of that name.
type Point = (usize, String, usize);

fn endpoints(service: &str, addresses: &[&str]) -> Value {
    let mut slice = crate::slice(service, "10.244.0.5");
    let one = slice["endpoints"][0].clone();
    let each = addresses.iter().map(|address| {
        let mut endpoint = one.clone();
        endpoint["addresses"] = json!([address]);
        endpoint
    });
    slice["endpoints"] = each.collect();
    slice
}

fn sticky(name: &str, ip: &str) -> Value {
    let mut service = crate::service(name, ip);
    service["spec"]["sessionAffinity"] = json!("ClientIP");
    service
}

fn dual(name: &str, ips: [&str; 2]) -> Value {
    let mut service = crate::service(name, ips[0]);
    service["spec"]["clusterIPs"] = json!(ips);
    service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    service
}

impl Mortal {
    fn new(flavour: &'static str) -> Self {
        let node = Node::new();
        let mut servers = Vec::new();
        for n in 5..8 {
            if n > 5 {
                node.netns.ip(&format!("addr add 10.244.0.{n}/32 dev lo"));
            }
            let address = format!("10.244.0.{n}:8080");
            servers.push(node.netns.serve(Protocol::Tcp, &address, "web"));
        }
        let hint = format!("iptables-{flavour} -t mangle -N KUBE-IPTABLES-HINT");
        node.netns.must_run(&["sh", "-c", &hint]);
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        crate::fill(&api);
        let mortal = Self {
            node,
            api,
            flavour,
            _servers: servers,
        };
        mortal.wrap();
        mortal
    }

    /// One of two states. Between them Services come and go, have no endpoint or another
    /// one, and remember their clients.
    fn change(&self, second: bool) {
        let (few, many) = (["10.244.0.5"], ["10.244.0.5", "10.244.0.6"]);
        let pick = |second| if second { &few[..] } else { &many[..] };
        self.api.apply(SLICES, endpoints("web", pick(second)));
        self.api.apply(SERVICES, sticky("sticky", "10.96.0.3"));
        self.api.apply(SLICES, endpoints("sticky", pick(!second)));
        self.api
            .apply(SERVICES, dual("six", ["10.96.0.4", "fd00:96::4"]));
        let mut six = endpoints("six", &[if second { "fd00::5" } else { "fd00::6" }]);
        six["addressType"] = json!("IPv6");
        self.api.apply(SLICES, six);
        let (comes, slice) = (
            crate::service("comes", "10.96.0.5"),
            endpoints("comes", &many),
        );
        if second {
            self.api.apply(SERVICES, comes);
            self.api.apply(SLICES, slice);
        } else {
            self.api.delete(SLICES, slice);
            self.api.delete(SERVICES, comes);
        }
        let loses: &[&str] = if second { &[] } else { &few };
        self.api
            .apply(SERVICES, crate::service("loses", "10.96.0.6"));
        self.api.apply(SLICES, endpoints("loses", loses));
    }

    fn programs(&self) -> [String; 3] {
        let of = |ip: &str| format!("{ip}-{}-restore", self.flavour);
        [of("iptables"), of("ip6tables"), "ipset".to_owned()]
    }

    /// Puts a script before each program that writes. The file `at` says what it does:
    /// nothing without it, `trace`, or a [`Point`].
    fn wrap(&self) {
        let dir = self.node.path("bin");
        fs::create_dir(&dir).unwrap();
        for program in self.programs() {
            let real = format!("command -v {program}");
            let real = self.node.netns.must_run(&["sh", "-c", &real]);
            let script = format!(
                "#!/bin/sh\ncd {}\n[ -e at ] || exec {real} \"$@\"\n\
                 n=$(($(cat n) + 1)); echo $n > n; read which name count < at\n\
                 if [ $which = trace ]; then\n\
                 exec strace -o log.$n -e trace=sendto,sendmsg,setsockopt {real} \"$@\"\nfi\n\
                 [ $which = $n ] || exec {real} \"$@\"\n\
                 strace -o /dev/null -e trace=$name -e inject=$name:signal=KILL:when=$count \
                 {real} \"$@\"\n\
                 code=$?; [ $code != 137 ] || kill -9 $PPID; exit $code\n",
                dir.display(),
                real = real.trim(),
            );
            let file = dir.join(program);
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn start(&self, at: Option<&str>) -> Daemon {
        fs::remove_file(self.node.path("log")).ok();
        fs::write(self.node.path("bin/n"), "0").unwrap();
        match at {
            Some(at) => fs::write(self.node.path("bin/at"), at).unwrap(),
            None => {
                fs::remove_file(self.node.path("bin/at")).ok();
            }
        }
        self.node.start_with("iptables", &FLAGS)
    }

    /// Starts a daemon that is killed there.
    fn kill_at(&self, (program, name, count): &Point) {
        let mut daemon = self.start(Some(&format!("{program} {name} {count}\n")));
        let point = format!("the end at {program} {name} {count}");
        let mut ended = || {
            Ok(if daemon.lives() {
                Err(String::new())
            } else {
                Ok(())
            })
        };
        wait_until(Duration::from_secs(30), &point, &mut ended).unwrap();
    }

    /// A whole sync; the rules and sets afterwards.
    fn settle(&self) -> Vec<String> {
        let daemon = self.start(None);
        daemon.wait_said(&["Programmed all Services"]);
        assert_eq!(daemon.terminate().code(), Some(0));
        self.ours()
    }

    fn ours(&self) -> Vec<String> {
        let save = ["iptables", "ip6tables"].map(|ip| format!("{ip}-{}-save", self.flavour));
        let dumps = format!("{}; {}; ipset list -terse -output save", save[0], save[1]);
        let dumps = self.node.netns.must_run(&["sh", "-c", &dumps]);
        let lines = dumps.lines().filter(|line| line.contains("SEAWAY-"));
        let lines = lines.filter_map(|line| match line.split_once(' ')? {
            // A client that a set remembers.
            ("add", _) => None,
            // Without its random numbers, and without a chain's counters.
            ("create", rest) => rest.split(' ').next(),
            (chain, _) if chain.starts_with(':') => Some(chain),
            _ => Some(line),
        });
        lines.map(str::to_owned).collect()
    }

    fn log(&self, program: usize) -> PathBuf {
        self.node.path(&format!("bin/log.{program}"))
    }

    /// All calls of one sync that may change the kernel.
    fn points(&self) -> Vec<Point> {
        for number in 1..100 {
            fs::remove_file(self.log(number)).ok();
        }
        let daemon = self.start(Some("trace"));
        daemon.wait_said(&["Programmed all Services"]);
        assert_eq!(daemon.terminate().code(), Some(0));
        let mut points = Vec::new();
        for program in 1..100 {
            let Ok(log) = fs::read_to_string(self.log(program)) else {
                break;
            };
            let mut counts = [("sendto", 0), ("sendmsg", 0), ("setsockopt", 0)];
            for line in log.lines() {
                let Some((name, rest)) = line.split_once('(') else {
                    continue;
                };
                let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == name) else {
                    continue;
                };
                *count += 1;
                if changes(name, rest) {
                    points.push((program, name.to_owned(), *count));
                }
            }
        }
        points
    }
}

/// Whether a call is more than a question or a setting of its socket.
fn changes(name: &str, rest: &str) -> bool {
    match name {
        "setsockopt" => rest.contains("SOL_IP"),
        // iptables' questions and ipset's.
        "sendto" => ![
            "_GET",
            "_CMD_PROTOCOL",
            "_CMD_TYPE",
            "_CMD_LIST",
            "_CMD_HEADER",
        ]
        .iter()
        .any(|question| rest.contains(question)),
        _ => true,
    }
}

fn is_possible() -> bool {
    let has_strace = std::process::Command::new("strace")
        .arg("-V")
        .output()
        .is_ok();
    if !has_strace {
        skip("needs strace, which kills a program at a system call");
    }
    require_root() && has_strace
}

/// Each kill in turn: from nothing, then from one state to the other and back.
fn killed_everywhere(flavour: &'static str) {
    let mortal = Mortal::new(flavour);
    mortal.change(true);
    let first = mortal.points();
    let second = mortal.ours();
    // Two families with two tables each, and two sets.
    assert!(first.len() >= 6, "{first:?}");
    for point in &first {
        mortal.node.cleanup();
        assert_eq!(mortal.ours(), [""; 0]);
        mortal.kill_at(point);
        assert_eq!(mortal.settle(), second, "{flavour} {point:?}");
    }
    mortal.change(false);
    let to_first = mortal.points();
    let wanted = [mortal.ours(), second];
    assert_ne!(wanted[0], wanted[1]);
    mortal.change(true);
    let points = [to_first, mortal.points()];
    assert!(points.iter().all(|points| points.len() >= 4), "{points:?}");
    let load = Load::start(&mortal.node.netns, &STAYS);
    let well = |at: &str, state: usize| {
        assert_eq!(mortal.settle(), wanted[state], "{flavour} {at}");
        let failures = load.failures();
        assert!(failures.is_empty(), "{flavour} {at}: {failures:#?}");
    };
    for k in 0..points[0].len().max(points[1].len()) {
        for state in [0, 1] {
            mortal.change(state == 1);
            let point = points[state].get(k);
            if let Some(point) = point {
                mortal.kill_at(point);
            }
            well(&format!("{point:?}"), state);
        }
    }
    // And whenever it comes, its own writes included.
    for k in 0..6 {
        let state = k % 2;
        mortal.change(state == 1);
        let daemon = mortal.start(None);
        let time = Duration::from_millis(30) * u32::try_from(k).unwrap();
        pause_until(Instant::now() + time);
        daemon.end(Signal::SIGKILL);
        well(&format!("{time:?}"), state);
    }
    assert!(load.end() > 100);
}

/// Restarted, then left dead while the API goes on, then started.
fn left_dead(time: Duration) {
    let mortal = Mortal::new("nft");
    mortal.change(true);
    let second = mortal.settle();
    mortal.change(false);
    let first = mortal.settle();
    let load = Load::start(&mortal.node.netns, &STAYS);
    let well = |at: &str| {
        let failures = load.failures();
        assert!(failures.is_empty(), "{at}: {failures:#?}");
    };
    for end in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        let daemon = mortal.start(None);
        daemon.wait_said(&["Programmed all Services"]);
        daemon.end(end);
        assert_eq!(mortal.ours(), first);
        well(end.as_str());
    }
    let (answered, until) = (load.answered(), Instant::now() + time);
    mortal.change(true);
    pause_until(until);
    well("dead");
    assert_eq!(mortal.ours(), first);
    // Of two hundred a second, what a machine manages that is busy with the kills beside it.
    let answered = load.answered() - answered;
    assert!(answered > 20 * time.as_secs(), "{answered}");
    assert_eq!(mortal.settle(), second);
    load.end();
}

/// The minute is used for the kills, on nodes of their own.
#[test]
fn case_246_killed_at_every_write_or_left_dead_for_a_minute_nobody_notices() {
    if !is_possible() {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| ["nft", "legacy"].into_iter().for_each(killed_everywhere));
        left_dead(Duration::from_mins(1));
    });
}
