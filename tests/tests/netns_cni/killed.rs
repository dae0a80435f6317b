//! ADD and DEL killed at every step: no address is given twice, and nothing is left.

mod host_local;
mod points;

use std::net::UdpSocket;

use seaway_testbed::{Netns, require_root, strace_is_missing};
use serde_json::{Value, json};

use crate::hostports::elements;
use crate::node::{Node, addresses, assert_reaches, pod_path, success, text};
use crate::trace::traced;
use points::{Point, changing_points, kill_at};

/// The host's ends of a hostPort, from the host itself.
const HOST_PORTS: [&str; 2] = ["172.30.0.11:8080", "[fd00:172::11]:8080"];

/// A node whose plugin is killed, and the pod that it is called for.
struct Victim {
    node: Node,
    pod: Netns,
    /// Whether strace looks at threads and other programs, too.
    follows: bool,
}

impl Victim {
    /// With all that a pod can have of our own: sticky addresses, limits, ports.
    fn new() -> Self {
        let mut node = Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/64"]);
        node.conf["ipam"]["sticky"] = json!(true);
        node.conf["ipam"]["stickyDir"] = json!(node.dir.path().join("sticky"));
        Self::of(node, true)
    }

    fn of(mut node: Node, follows: bool) -> Self {
        let rate = json!({
            "ingressRate": 10_000_000, "ingressBurst": 1_000_000,
            "egressRate": 10_000_000, "egressBurst": 1_000_000,
        });
        node.conf["runtimeConfig"] = json!({
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp"}],
            "bandwidth": rate,
        });
        let pod = Netns::new("pod");
        // The node's own settings are made by the first ADD.
        node.add("first", &pod);
        node.del("first", pod_path(&pod));
        Self { node, pod, follows }
    }

    fn path(&self) -> &str {
        pod_path(&self.pod)
    }

    fn traced(&self, verb: &str, options: &[String], log: &str) -> std::process::Output {
        let follow = self.follows.then_some("-f");
        let mut all: Vec<&str> = follow.into_iter().chain(["-o", log]).collect();
        all.extend(options.iter().map(String::as_str));
        traced(&self.node, verb, "killed", self.path(), &all)
    }

    fn points(&self, verb: &str) -> Vec<Point> {
        let log = self.node.dir.path().join("trace");
        let output = self.traced(verb, &[], log.to_str().unwrap());
        assert!(output.status.success(), "{}", text(&output));
        assert!(output.stderr.is_empty(), "{}", text(&output));
        changing_points(&log, self.follows)
    }

    /// False when the call was not reached: the number of waits varies.
    fn kill(&self, verb: &str, point: &Point) -> bool {
        let options = kill_at(point);
        !self.traced(verb, &options, "/dev/null").status.success()
    }

    /// A client's first datagram, which makes a flow to the pod if the port leads there.
    fn send_to_ports(&self) {
        self.node.netns.enter(|| {
            for to in HOST_PORTS {
                let any = if to.starts_with('[') {
                    "[::]:0"
                } else {
                    "0.0.0.0:0"
                };
                // Without a port there is nobody, and an earlier datagram's answer says so.
                UdpSocket::bind(any).unwrap().send_to(b"?", to).ok();
            }
        });
    }

    /// Somebody else's ADD gets addresses that nobody has, and they work.
    #[track_caller]
    fn assert_another_can_be_added(&mut self, point: &Point) {
        let node = &mut self.node;
        let other = Netns::new("other");
        let ports = node.conf["runtimeConfig"].take();
        let result = success(&node.call("ADD", "other", pod_path(&other)));
        node.conf["runtimeConfig"] = ports;
        let records = node.records();
        for address in addresses(&result) {
            let holders = records
                .iter()
                .filter(|record| record.starts_with(&format!("{address}=")));
            assert_eq!(holders.count(), 1, "{point:?}: {records:?}");
            assert_reaches(&node.netns, &address);
        }
        self.assert_remembered(&addresses(&result), point);
        self.node.del("other", "");
    }

    /// Both pods have the same name, so the last one's addresses are the only ones.
    #[track_caller]
    fn assert_remembered(&self, addresses: &[String], point: &Point) {
        if !self.is_own() {
            return;
        }
        let dir = self.node.dir.path().join("sticky/seaway");
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut want: Vec<String> = addresses
            .iter()
            .map(|a| format!("{a}=default_web"))
            .collect();
        want.sort();
        assert_eq!(names, want, "{point:?}");
    }

    #[track_caller]
    fn assert_nothing_is_left(&self, point: &Point) {
        self.node.assert_empty();
        assert_eq!(elements(&self.node), [""; 0], "{point:?}");
        let links = self.pod.ip_json("link");
        assert_eq!(links.as_array().unwrap().len(), 1, "{point:?}");
        for family in ["ipv4", "ipv6"] {
            let words = ["conntrack", "-L", "-f", family, "-p", "udp"];
            let flows = self.node.netns.must_run(&words);
            // The pod's port, as the one who answers.
            assert!(!flows.contains("sport=80 "), "{point:?}: {flows}");
        }
    }

    /// host-local refuses an attachment that it knows; the ADD that fails for that gives back
    /// what it has.
    #[track_caller]
    fn try_again(&self) -> Value {
        let first = self.node.call("ADD", "killed", self.path());
        if self.is_own() || first.status.success() {
            return success(&first);
        }
        assert!(text(&first).contains("duplicate"), "{}", text(&first));
        self.node.add("killed", &self.pod)
    }

    /// Whether the addresses are our own.
    fn is_own(&self) -> bool {
        self.node.conf["ipam"]["type"] == "seaway"
    }

    /// The runtime's clean-up, with and without a namespace, or of everything.
    fn clean_up(&mut self, n: usize) {
        match n % 3 {
            0 => self.node.del("killed", ""),
            1 => self.node.del("killed", self.path()),
            _ => {
                let records = self.node.records();
                let is_recorded = records.iter().any(|record| record.contains("=killed:"));
                let before = self.node.conf.clone();
                self.node.conf["cniVersion"] = json!("1.1.0");
                self.node.conf["cni.dev/valid-attachments"] = json!([]);
                let output = self.node.call("GC", "", "");
                assert!(output.status.success(), "{}", text(&output));
                self.node.conf = before;
                // What another IPAM plugin gave to an ADD that was killed before it had written
                // that down nobody knows; that is for the DEL which a failed ADD is followed by.
                if !self.is_own() && !is_recorded {
                    self.node.del("killed", "");
                }
            }
        }
    }

    fn kill_adds(&mut self, left: impl Fn(&Node, &Point)) {
        let points = self.points("ADD");
        self.node.del("killed", self.path());
        let mut killed = 0;
        for (n, point) in points.iter().enumerate() {
            killed += usize::from(self.kill("ADD", point));
            self.send_to_ports();
            self.assert_another_can_be_added(point);
            // The runtime may clean up, or try again first.
            if n % 2 == 0 && self.pod.ip_json("link").as_array().unwrap().len() == 1 {
                let result = self.try_again();
                assert_reaches(&self.node.netns, &addresses(&result)[1]);
            }
            self.clean_up(n);
            self.assert_nothing_is_left(point);
            left(&self.node, point);
        }
        assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
    }

    fn kill_dels(&mut self, left: impl Fn(&Node, &Point)) {
        self.node.add("killed", &self.pod);
        let points = self.points("DEL");
        let mut killed = 0;
        for (n, point) in points.iter().enumerate() {
            self.node.add("killed", &self.pod);
            self.send_to_ports();
            killed += usize::from(self.kill("DEL", point));
            self.assert_another_can_be_added(point);
            self.clean_up(n);
            self.assert_nothing_is_left(point);
            left(&self.node, point);
        }
        assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
    }
}

#[test]
fn case_29_add_killed_at_every_step_is_cleaned_by_del() {
    if require_root() && !strace_is_missing() {
        Victim::new().kill_adds(|_, _| {});
    }
}

#[test]
fn case_29_del_killed_at_every_step_is_completed_by_the_next() {
    if require_root() && !strace_is_missing() {
        Victim::new().kill_dels(|_, _| {});
    }
}
