//! Failures that pass are no lack of anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour, Iptables};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{require_root, write_program};

use super::{LOCKED, NO_SET, Refusal, no_rule, one_sticky, sets};
use crate::node::{Node, VIP, answers, block_on, config, each_flavour, names, web};

#[test]
fn a_set_that_cannot_be_created_after_others_costs_no_affinity() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        config.ipset = NO_SET.of("probe", dir.path(), &config.ipset);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore = no_rule(flavour).of("-j DNAT ", dir.path(), &commands.restore);
        }
        let mut n = Node::new(config);
        n.sync(&one_sticky(1));
        fs::write(dir.path().join("lacks"), "").unwrap();
        let desired = one_sticky(2);
        let backend = &mut n.backend;
        let refused = || block_on(sync_once(backend, None, &desired));
        n.host.enter(refused).expect_err("nothing is translated");
        assert_eq!(n.backend.unsupported(&desired), []);
        fs::remove_file(dir.path().join("lacks")).unwrap();
        assert!(n.sync(&desired));
        assert_eq!(sets(&n).lines().count(), 2, "{}", sets(&n));
    });
}

/// A round that fails while `lacks` is in these folders leaves no Service out, and the next one
/// serves both.
fn costs_no_service(config: Config, dirs: &[&Path]) {
    let (mut n, desired) = (Node::new(config), web(2));
    for dir in dirs {
        fs::write(dir.join("lacks"), "").unwrap();
    }
    let backend = &mut n.backend;
    let failing = || block_on(sync_once(backend, None, &desired));
    n.host.enter(failing).expect_err("it is refused");
    assert_eq!(n.backend.unsupported(&desired), []);
    for dir in dirs {
        // One that passes has gone by itself.
        fs::remove_file(dir.join("lacks")).ok();
    }
    assert!(n.sync(&desired));
    let answered = answers(&n.client, Protocol::Tcp, VIP);
    assert_eq!(names(&answered), ["pod0", "pod1"].into());
}

#[test]
fn a_write_that_waits_for_the_lock_in_vain_costs_no_service() {
    if !require_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(Flavour::Legacy);
    let restore = &mut config.legacy.restore;
    *restore = LOCKED.of("-m statistic", dir.path(), restore);
    costs_no_service(config, &[dir.path()]);
}

/// What is said to the probes of one who cannot write for another reason.
fn after_another_failure(flavour: Flavour, said: &Refusal) {
    let (probes, writes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = config(flavour);
    for commands in [&mut config.nft, &mut config.legacy] {
        let probed = said.of("-m statistic", probes.path(), &commands.restore);
        commands.restore = no_rule(flavour).of("-j DNAT ", writes.path(), &probed);
    }
    costs_no_service(config, &[probes.path(), writes.path()]);
}

#[test]
fn a_probe_that_waits_for_the_lock_in_vain_costs_no_service() {
    if require_root() {
        after_another_failure(Flavour::Legacy, &LOCKED);
    }
}

#[test]
fn a_probe_that_is_refused_once_costs_no_service() {
    each_flavour(|flavour| {
        let passes = Refusal {
            once: true,
            ..no_rule(flavour)
        };
        after_another_failure(flavour, &passes);
    });
}

/// What a program does instead of its work.
const KILLED: &str = "kill -9 $$";
const LATE: &str = "exec sleep 60";

/// A program that does so once, when the file `lacks` is in `dir`.
fn once(instead: &str, dir: &Path, program: &Path) -> PathBuf {
    let script = format!(
        "#!/bin/sh\ndir={}\nif [ -e \"$dir/lacks\" ]; then\nrm \"$dir/lacks\"\n{instead}\nfi\n\
         exec {} \"$@\"\n",
        dir.display(),
        program.display(),
    );
    let file = dir.join(program.file_name().unwrap());
    write_program(&file, &script);
    fs::write(dir.join("lacks"), "").unwrap();
    file
}

#[test]
fn an_ip6tables_that_does_not_come_to_its_end_once_costs_no_ipv6_and_one_that_never_does_no_ipv4() {
    each_flavour(|flavour| {
        let n = Node::new(config(flavour));
        for instead in [KILLED, LATE] {
            let dir = tempfile::tempdir().unwrap();
            let mut config = config(flavour);
            for commands in [&mut config.nft, &mut config.legacy] {
                commands.save_v6 = once(instead, dir.path(), &commands.save_v6);
            }
            let impatient = Config {
                timeout: Duration::from_secs(1),
                ..config
            };
            let start = |config| n.host.enter(|| block_on(Iptables::for_writing(config)));
            assert_eq!(start(impatient).unwrap().families(), Family::ALL);
            assert!(!dir.path().join("lacks").exists(), "it was asked");
        }
        let dir = tempfile::tempdir().unwrap();
        let killed = dir.path().join("killed");
        write_program(&killed, &format!("#!/bin/sh\n{KILLED}\n"));
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.save_v6.clone_from(&killed);
        }
        let start = || block_on(Iptables::for_writing(config));
        assert_eq!(n.host.enter(start).unwrap().families(), [Family::V4]);
    });
}

#[test]
fn leftovers_of_the_other_flavour_go_though_it_cannot_be_asked_at_first() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        let (other, commands) = match flavour {
            Flavour::Nft => (Flavour::Legacy, &mut config.legacy),
            Flavour::Legacy => (Flavour::Nft, &mut config.nft),
        };
        commands.restore = once(KILLED, dir.path(), &commands.restore);
        let mut n = Node::new(config);
        n.restore(other, "*nat\n:SEAWAY-SVC-0 - [0:0]\nCOMMIT");
        for _ in 0..2 {
            n.sync(&web(1));
        }
        assert!(!dir.path().join("lacks").exists(), "it was asked");
        let left = n.dump(other);
        assert!(!left.contains("SEAWAY"), "{left}");
    });
}
