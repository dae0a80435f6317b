//! What a kernel cannot do costs only those who need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{DesiredState, Family};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour, Iptables};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{wait_until, write_program};

use crate::node::{Node, VIP, answers, block_on, config, each_flavour, in_v6, names, web};

mod in_passing;

/// How a program says that the kernel does not take its input.
pub(crate) struct Refusal {
    says: &'static str,
    status: u8,
    /// Whether that passes.
    once: bool,
}

/// Of a rule with something unknown in it.
pub(crate) fn no_rule(flavour: Flavour) -> Refusal {
    let (says, status) = match flavour {
        Flavour::Nft => ("line 3: RULE_APPEND failed (No such file or directory)", 4),
        Flavour::Legacy => ("iptables-restore: line 3 failed", 1),
    };
    Refusal {
        says,
        status,
        once: false,
    }
}

/// Of a program of legacy, as long as somebody else has the lock.
const LOCKED: Refusal = Refusal {
    says: "Another app is currently holding the xtables lock.",
    status: 4,
    once: false,
};

/// Of a set of an unknown kind.
const NO_SET: Refusal = Refusal {
    says: "Error in line 1: Kernel error received: set type not supported",
    status: 1,
    once: false,
};

/// Of tables that the kernel does not have.
fn no_table(flavour: Flavour) -> Refusal {
    let (says, status) = match flavour {
        Flavour::Nft => (
            "line 1: TABLE_ADD failed (Operation not supported): table nat",
            4,
        ),
        Flavour::Legacy => ("ip6tables-restore: unable to initialize table nat", 1),
    };
    Refusal {
        says,
        status,
        once: false,
    }
}

impl Refusal {
    /// A program that is refused what has `pattern` in it, while the file `lacks` is in `dir`.
    pub(crate) fn of(&self, pattern: &str, dir: &Path, program: &Path) -> PathBuf {
        let passes = if self.once { "rm \"$dir/lacks\"" } else { ":" };
        let script = format!(
            "#!/bin/sh\ndir={}\ncat > \"$dir/input.$$\"\n\
             if [ -e \"$dir/lacks\" ] && grep -q -- '{pattern}' \"$dir/input.$$\"; then\n\
             {passes}\necho '{}' >&2; exit {}\nfi\n\
             exec {} \"$@\" < \"$dir/input.$$\"\n",
            dir.display(),
            self.says,
            self.status,
            program.display(),
        );
        let file = dir.join(program.file_name().unwrap());
        write_program(&file, &script);
        file
    }
}

/// A node whose ip6tables is refused all of the nat table, and its Services of both families.
fn without_nat_of_v6(config: &mut Config, refusal: &Refusal, dir: &Path) -> (Node, DesiredState) {
    for commands in [&mut config.nft, &mut config.legacy] {
        commands.restore_v6 = refusal.of("^\\*nat", dir, &commands.restore_v6);
    }
    fs::write(dir.join("lacks"), "").unwrap();
    let mut n = Node::new(config.clone());
    n.backend = writer(&n, config);
    let mut desired = web(2);
    desired.v6 = in_v6(&desired.v4);
    (n, desired)
}

/// Of a start of the daemon.
fn writer(n: &Node, config: &Config) -> Iptables {
    let start = || block_on(Iptables::for_writing(config.clone()));
    n.host.enter(start).unwrap()
}

#[test]
fn a_kernel_without_nat_of_ipv6_serves_ipv4_until_a_start_finds_it() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let (mut config, refusal) = (config(flavour), no_table(flavour));
        let (mut n, desired) = without_nat_of_v6(&mut config, &refusal, dir.path());
        assert_eq!(n.backend.families(), [Family::V4]);
        assert!(n.sync(&desired), "nothing is written that cannot be");
        assert!(!n.sync(&desired));
        let answered = answers(&n.client, Protocol::Tcp, VIP);
        assert_eq!(names(&answered), ["pod0", "pod1"].into());
        let told = n.backend.unsupported(&desired);
        assert_eq!(told.len(), 2, "{told:?}");
        for told in told {
            let text = told.to_string();
            assert!(text.contains("ip6tables does not work"), "{text}");
        }
        assert!(!n.dump(flavour).contains("probe"), "{}", n.dump(flavour));
        fs::remove_file(dir.path().join("lacks")).unwrap();
        n.backend = writer(&n, &config);
        assert_eq!(n.backend.families(), Family::ALL);
        assert!(n.sync(&desired));
        assert_eq!(n.backend.unsupported(&desired), []);
        let dump = n.host.must_run(&[format!("ip6tables-{flavour}-save")]);
        assert!(dump.contains("DNAT") && !dump.contains("probe"), "{dump}");
    });
}

#[test]
fn a_start_at_which_ip6tables_is_refused_once_or_waits_in_vain_serves_ipv6() {
    each_flavour(|flavour| {
        let refusal = match flavour {
            Flavour::Nft => Refusal {
                once: true,
                ..no_rule(flavour)
            },
            Flavour::Legacy => LOCKED,
        };
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        let (n, _desired) = without_nat_of_v6(&mut config, &refusal, dir.path());
        assert_eq!(n.backend.families(), Family::ALL);
    });
}

/// Rules of an earlier run say more than any refusal.
#[test]
fn a_start_among_rules_of_ipv6_tries_nothing_out() {
    each_flavour(|flavour| {
        let (mut n, mut desired) = (Node::new(config(flavour)), web(1));
        desired.v6 = in_v6(&desired.v4);
        n.sync(&desired);
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore_v6 = "false".into();
        }
        n.backend = writer(&n, &config);
        assert_eq!(n.backend.families(), Family::ALL);
    });
}

/// Two Services of so many pods, one of them with affinity.
fn one_sticky(pods: u8) -> DesiredState {
    let mut desired = web(pods);
    let port = desired.v4.services.values_mut().next().unwrap();
    port.affinity = Some(Duration::from_hours(3));
    desired
}

fn sets(n: &Node) -> String {
    n.host.must_run(&["ipset", "list", "-name"])
}

#[track_caller]
fn assert_affinity_is_missing(n: &Node, desired: &DesiredState) {
    let told = n.backend.unsupported(desired);
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    let text = told.to_string();
    for part in ["default/web", "without session affinity", "xt_set"] {
        assert!(text.contains(part), "{text}");
    }
}

/// What is missing is known once a round has failed for it, and the next one does without.
pub(crate) fn find_out(n: &mut Node, desired: &DesiredState) {
    let backend = &mut n.backend;
    let first = n.host.enter(|| block_on(sync_once(backend, None, desired)));
    first.expect_err("it has to be found out");
    assert!(n.sync(desired));
}

/// `config` is of programs that are refused as long as the file `lacks` is there.
fn is_served_without_affinity_at_first(config: Config, dir: &Path) {
    let config = Config {
        module_retry: Duration::ZERO,
        ..config
    };
    fs::write(dir.join("lacks"), "").unwrap();
    let (mut n, desired) = (Node::new(config), one_sticky(2));
    assert_eq!(n.backend.unsupported(&desired), []);
    find_out(&mut n, &desired);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let answered = answers(&n.client, protocol, VIP);
        assert_eq!(names(&answered), ["pod0", "pod1"].into());
    }
    assert_affinity_is_missing(&n, &desired);
    assert_eq!(sets(&n), "");
    assert!(!n.sync(&desired), "it is no news");
    // It is looked for at the end of a round, so the next one has it.
    fs::remove_file(dir.join("lacks")).unwrap();
    assert!(!n.sync(&desired));
    assert!(n.sync(&desired));
    assert_eq!(n.backend.unsupported(&desired), []);
    let answered = answers(&n.client, Protocol::Tcp, VIP);
    assert_eq!(names(&answered).len(), 1, "{answered:?}");
    // The kernel takes its time to let go of a rule.
    wait_until(Duration::from_secs(10), "the probe to go", || {
        let left = n.dump(n.flavour) + &sets(&n);
        if !left.contains("probe") {
            return Ok(Ok(()));
        }
        n.sync(&desired);
        Ok(Err(left))
    })
    .unwrap();
    assert_eq!(sets(&n).lines().count(), 2, "{}", sets(&n));
}

#[test]
fn a_kernel_without_sets_of_addresses_serves_all_without_affinity_until_it_has_them() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        config.ipset = NO_SET.of("^create ", dir.path(), &config.ipset);
        is_served_without_affinity_at_first(config, dir.path());
    });
}

#[test]
fn a_kernel_whose_rules_cannot_look_into_sets_serves_all_without_affinity_until_they_can() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore = no_rule(flavour).of("-m set ", dir.path(), &commands.restore);
        }
        is_served_without_affinity_at_first(config, dir.path());
    });
}
