//! Chains of others at the end of which what is forwarded is dropped; the oracles are packets
//! and the program that wrote the chain.

use std::time::Duration;

use seaway_firewall::{Change, Firewall, State};
use seaway_testbed::peer::{self, Protocol::Tcp, Server};
use seaway_testbed::{Netns, XTABLES_WAIT as WAIT, connect, require_root};

/// How long what does not come is waited for.
const SHORT: Duration = Duration::from_millis(200);
const OURS: [&str; 2] = [
    "-A FORWARD -i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT",
    "-A FORWARD -o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT",
];

/// a 10.244.1.5, fd00:1::5 - sw1 node sw2 - b 10.244.2.5, fd00:2::5
struct Pods {
    a: Netns,
    node: Netns,
    _server: Server,
    _b: Netns,
}

impl Pods {
    fn new() -> Self {
        let (a, node, b) = (Netns::new("a"), Netns::new("node"), Netns::new("b"));
        for (pod, n) in [(&a, 1), (&b, 2)] {
            let sw = format!("sw{n}");
            let gateway = format!("10.244.{n}.1");
            let [host, own] = [1, 5].map(|last| format!("10.244.{n}.{last}/24"));
            connect(&node, &sw, &host, pod, "eth0", &own);
            // Neighbours are looked for with such an address, and the kernel's own is not used
            // before it has been tried for a second.
            node.ip(&format!("addr add fe80::1/64 dev {sw} nodad"));
            pod.ip("addr add fe80::2/64 dev eth0 nodad");
            node.ip(&format!("addr add fd00:{n}::1/64 dev {sw} nodad"));
            pod.ip(&format!("addr add fd00:{n}::5/64 dev eth0 nodad"));
            pod.ip(&format!("route add default via {gateway}"));
            pod.ip(&format!("-6 route add default via fd00:{n}::1"));
        }
        node.sysctl("ipv4/ip_forward", "1");
        node.sysctl("ipv6/conf/all/forwarding", "1");
        Self {
            _server: b.serve(Tcp, "[::]:80", "b"),
            a,
            node,
            _b: b,
        }
    }

    /// Whether a connection from a to b comes about.
    fn pass(&self, address: &str) -> bool {
        self.a.ask_tcp(address).is_ok_and(|name| name == "b")
    }

    fn are_cut_off(&self, address: &str) -> bool {
        let address = address.parse().unwrap();
        let asked = self.a.enter(|| peer::ask(Tcp, address, SHORT));
        asked.is_err()
    }

    fn ensure(&self) -> Change {
        let ensure = || Firewall::open().unwrap().ensure_forward_accept();
        self.node.enter(ensure).unwrap()
    }

    fn remove(&self) -> Change {
        let remove = || Firewall::open().unwrap().remove_all();
        self.node.enter(remove).unwrap()
    }

    /// Whether upkeep sees that pods' packets are dropped.
    fn is_lost(&self) -> bool {
        let state = || Firewall::open().unwrap().state();
        let state = self.node.enter(state).unwrap();
        state.lost_since(&State::default()).forward
    }

    /// What the operator is told of.
    fn told(&self) -> Vec<[String; 3]> {
        let drops = || Firewall::open().unwrap().foreign_drops();
        let drops = self.node.enter(drops).unwrap();
        let names = drops
            .into_iter()
            .map(|drop| [drop.family.to_owned(), drop.table, drop.chain]);
        names.collect()
    }

    /// What a program shows of FORWARD.
    fn shown(&self, program: &str) -> Vec<String> {
        let shown = self.node.must_run(&[program, WAIT, "-S", "FORWARD"]);
        shown.lines().map(str::to_owned).collect()
    }

    /// Makes FORWARD hold exactly these rules, and accept what comes to its end.
    fn restore(&self, program: &str, rules: &[&str]) {
        let rules = rules.join("\n");
        let table = format!("*filter\n:FORWARD ACCEPT [0:0]\n{rules}\nCOMMIT");
        let script = format!("{program}-restore {WAIT} <<'END'\n{table}\nEND");
        self.node.must_run(&["sh", "-c", &script]);
    }
}

/// These rules with our accepts among them.
fn with_ours(alone: &[String], place: usize) -> Vec<String> {
    let (before, behind) = alone.split_at(place);
    [before, &OURS.map(str::to_owned), behind].concat()
}

/// Runs a test in each flavour of iptables, with a program of each family and b's address.
fn each_flavour(test: impl Fn(&Pods, &[(&str, &str); 2])) {
    for flavour in ["nft", "legacy"] {
        let programs = ["iptables", "ip6tables"].map(|name| format!("{name}-{flavour}"));
        let pods = Pods::new();
        let known = [WAIT, "-P", "FORWARD", "ACCEPT"];
        let known = programs.each_ref().map(|program| {
            let words = [&[program.as_str()], &known[..]].concat();
            pods.node.run(&words).status.success()
        });
        if flavour == "legacy" && known != [true; 2] {
            eprintln!("skipped: this kernel has no iptables-legacy of both families");
            continue;
        }
        assert_eq!(known, [true; 2], "{flavour}");
        let [v4, v6] = &programs;
        test(
            &pods,
            &[
                (v4.as_str(), "10.244.2.5:80"),
                (v6.as_str(), "[fd00:2::5]:80"),
            ],
        );
    }
}

/// As /etc/sysconfig/iptables of many hosts has it.
#[test]
fn a_forward_that_ends_by_rejecting_everything_lets_pods_pass_and_is_left_as_it_was() {
    if !require_root() {
        return;
    }
    each_flavour(|pods, programs| {
        for end in [
            "-j REJECT",
            "-m comment --comment nobody -j REJECT",
            "-j DROP",
        ] {
            for (program, _) in programs {
                let end = format!("-A FORWARD {end}");
                let rules = [
                    "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                    "-A FORWARD -i lo -j ACCEPT",
                    &end,
                    // Too late, as an accept of ours would be.
                    "-A FORWARD -i docker0 -j ACCEPT",
                ];
                pods.restore(program, &rules);
            }
            let alone = programs.map(|(program, _)| pods.shown(program));
            for (program, address) in programs {
                assert!(pods.are_cut_off(address), "{program} {end}");
            }
            assert!(pods.is_lost(), "{end}");

            assert_eq!(pods.ensure(), Change::Changed, "{end}");
            for ((program, address), alone) in programs.iter().zip(&alone) {
                assert!(pods.pass(address), "{program} {end}");
                // Behind the policy and two rules.
                assert_eq!(pods.shown(program), with_ours(alone, 3));
            }
            assert!(!pods.is_lost(), "{end}");
            assert_eq!(pods.ensure(), Change::Unchanged, "{end}");

            assert_eq!(pods.remove(), Change::Changed, "{end}");
            for ((program, address), alone) in programs.iter().zip(&alone) {
                assert_eq!(pods.shown(program), *alone);
                assert!(pods.are_cut_off(address), "{program} {end}");
            }
        }
    });
}

#[test]
fn accepts_that_somebody_has_put_a_rejection_before_are_moved_and_not_doubled() {
    if !require_root() {
        return;
    }
    each_flavour(|pods, programs| {
        for (program, _) in programs {
            pods.restore(program, &["-A FORWARD -i docker0 -j ACCEPT"]);
            let words = [*program, WAIT, "-P", "FORWARD", "DROP"];
            pods.node.must_run(&words);
        }
        assert_eq!(pods.ensure(), Change::Changed);
        for (program, address) in programs {
            assert!(pods.pass(address), "{program}");
            // Behind somebody's rule; before all of them it would be somebody's will.
            let words = [*program, WAIT, "-I", "FORWARD", "2", "-j", "REJECT"];
            pods.node.must_run(&words);
            assert!(pods.are_cut_off(address), "{program}");
        }
        assert!(pods.is_lost());
        // The policy, a rule, the rejection, and ours.
        let alone = programs.map(|(program, _)| pods.shown(program)[..3].to_vec());
        assert_eq!(pods.ensure(), Change::Changed);
        for ((program, address), alone) in programs.iter().zip(&alone) {
            assert!(pods.pass(address), "{program}");
            assert_eq!(pods.shown(program), with_ours(alone, 2));
        }
        assert_eq!(pods.remove(), Change::Changed);
        for ((program, _), alone) in programs.iter().zip(&alone) {
            assert_eq!(pods.shown(program), *alone);
        }
    });
}

#[test]
fn a_drop_that_somebody_has_put_before_all_else_is_left_alone_and_told() {
    if !require_root() {
        return;
    }
    each_flavour(|pods, programs| {
        let is_nft = programs[0].0.ends_with("-nft");
        let stopped = ["ip", "ip6"].map(|family| [family, "filter", "FORWARD"].map(str::to_owned));
        let docker = ["-A FORWARD -i docker0 -j ACCEPT"];
        for others in [&docker[..0], &docker[..]] {
            for (program, _) in programs {
                pods.restore(program, others);
                let words = [*program, WAIT, "-P", "FORWARD", "DROP"];
                pods.node.must_run(&words);
            }
            assert_eq!(pods.ensure(), Change::Changed);
            for (program, address) in programs {
                assert!(pods.pass(address), "{program}");
                let words = [*program, WAIT, "-I", "FORWARD", "-j", "DROP"];
                pods.node.must_run(&words);
            }
            let before = programs.map(|(program, _)| pods.shown(program));
            assert_eq!(pods.ensure(), Change::Unchanged);
            assert_eq!(programs.map(|(program, _)| pods.shown(program)), before);
            assert!(!pods.is_lost(), "nothing of ours is to be repaired");
            assert_eq!(pods.told(), &stopped[..if is_nft { 2 } else { 0 }]);
            for (program, address) in programs {
                assert!(pods.are_cut_off(address), "{program}");
                let words = [*program, WAIT, "-D", "FORWARD", "-j", "DROP"];
                pods.node.must_run(&words);
                assert!(pods.pass(address), "{program}");
            }
            assert!(pods.told().is_empty());
            assert_eq!(pods.ensure(), Change::Unchanged);
        }
    });
}

#[test]
fn a_rejection_that_is_the_only_rule_lets_pods_pass() {
    if !require_root() {
        return;
    }
    each_flavour(|pods, programs| {
        for (program, _) in programs {
            pods.restore(program, &["-A FORWARD -j REJECT"]);
        }
        let alone = programs.map(|(program, _)| pods.shown(program));
        assert_eq!(pods.ensure(), Change::Changed);
        for ((program, address), alone) in programs.iter().zip(&alone) {
            assert!(pods.pass(address), "{program}");
            assert_eq!(pods.shown(program), with_ours(alone, 1));
        }
        assert!(pods.told().is_empty());
    });
}

/// (policy, rules, whether nobody passes); conditions are about nobody here.
const CHAINS: [(&str, &[&str], bool); 10] = [
    ("accept", &["reject"], true),
    (
        "accept",
        &["ct state established accept", "counter drop"],
        true,
    ),
    (
        "accept",
        &["reject with icmpx type host-unreachable", "accept"],
        true,
    ),
    ("drop", &["iifname \"docker0\" accept"], true),
    ("drop", &["return", "accept"], true),
    ("accept", &["ip saddr 192.0.2.1 drop"], false),
    ("accept", &["accept", "drop"], false),
    ("accept", &["return", "drop"], false),
    ("drop", &["accept"], false),
    ("accept", &["counter"], false),
];

#[test]
fn other_chains_at_whose_end_pods_are_dropped_are_told_and_no_others() {
    if !require_root() {
        return;
    }
    let pods = Pods::new();
    let address = "10.244.2.5:80";
    for (policy, rules, told) in CHAINS {
        let hook = format!("type filter hook forward priority 0; policy {policy};");
        let mut commands = vec![
            "add table inet guard".to_owned(),
            format!("add chain inet guard fw {{ {hook} }}"),
        ];
        let rules = rules.iter();
        commands.extend(rules.map(|rule| format!("add rule inet guard fw {rule}")));
        let commands = commands.join("; ");
        pods.node.must_run(&["nft", &commands]);

        let names = pods.told();
        if told {
            assert_eq!(names, [["inet", "guard", "fw"]], "{commands}");
            assert!(pods.are_cut_off(address), "{commands}");
        } else {
            assert!(names.is_empty(), "{commands}: {names:?}");
            assert!(pods.pass(address), "{commands}");
        }
        pods.node.must_run(&["nft", "delete table inet guard"]);
    }
}
