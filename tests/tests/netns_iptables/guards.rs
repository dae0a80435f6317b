//! What one Service or one address must not do to all others.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{DesiredState, Protocol};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour};
use seaway_testbed::{peer, write_program};
use tokio::time::timeout;

use crate::lacking::{find_out, no_rule};
use crate::node::{Node, VIP, answers, block_on, config, each_flavour, in_v6, many, names, web};

/// The C library shows `::192.0.2.1`, Rust `::c000:201`.
#[test]
fn an_address_that_others_write_in_another_way_is_no_difference() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = web(2);
        desired.v6 = in_v6(&desired.v4);
        let odd: IpAddr = "::192.0.2.1".parse().unwrap();
        for port in desired.v6.services.values_mut() {
            port.frontends[0].addr = odd;
            port.cluster[0].addr = SocketAddr::new("::198.51.100.7".parse().unwrap(), 8080);
        }
        assert!(n.sync(&desired));
        assert!(!n.sync(&desired), "a second round finds nothing to do");
        let dump = n.host.must_run(&[format!("ip6tables-{flavour}-save")]);
        assert!(dump.contains("::192.0.2.1"), "nothing was shown: {dump}");
    });
}

/// The Services of `web`, and one of them for SCTP as well.
fn with_sctp() -> DesiredState {
    let mut desired = many(5, 2);
    let (name, port) = desired.v4.services.iter().next().unwrap();
    let (mut name, mut port) = (name.clone(), port.clone());
    "phone".clone_into(&mut name.name);
    port.frontends[0].protocol = Protocol::Sctp;
    port.frontends[0].addr = "10.96.0.77".parse().unwrap();
    desired.v4.services.insert(name, port);
    desired
}

#[test]
fn a_kernel_without_sctp_serves_all_but_sctp_until_it_has_it() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore = no_rule(flavour).of("-m sctp", dir.path(), &commands.restore);
        }
        let config = Config {
            module_retry: Duration::ZERO,
            ..config
        };
        fs::write(dir.path().join("lacks"), "").unwrap();
        let (mut n, desired) = (Node::new(config), with_sctp());
        assert_eq!(n.backend.unsupported(&desired), []);
        find_out(&mut n, &desired);
        let answered = answers(&n.client, peer::Protocol::Tcp, VIP);
        assert_eq!(names(&answered), ["pod0", "pod1"].into());
        let told = n.backend.unsupported(&desired);
        let [told] = &told[..] else {
            panic!("{told:?}");
        };
        let text = told.to_string();
        assert!(text.contains("default/phone"), "{text}");
        assert!(text.contains("xt_sctp"), "{text}");
        assert!(!n.dump(flavour).contains("probe"), "{}", n.dump(flavour));
        // It is looked for at the end of a round, so the next one has it.
        fs::remove_file(dir.path().join("lacks")).unwrap();
        assert!(!n.sync(&desired));
        assert!(n.sync(&desired));
        assert!(n.dump(flavour).contains("10.96.0.77"));
        assert_eq!(n.backend.unsupported(&desired), []);
        assert!(!n.dump(flavour).contains("probe"), "{}", n.dump(flavour));
    });
}

/// What we wrote before a failure, and the probes after it, are nobody else's doing.
#[test]
fn a_write_that_fails_in_one_family_is_not_taken_for_drift() {
    each_flavour(|flavour| {
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore_v6 = "false".into();
        }
        let mut n = Node::new(config);
        let mut desired = web(2);
        desired.v6 = in_v6(&desired.v4);
        let (host, backend) = (&n.host, &mut n.backend);
        let (failed, noticed) = host.enter(|| {
            block_on(async {
                backend.attend().await;
                assert!(backend.is_watched());
                let failed = sync_once(backend, None, &desired).await;
                let noticed = timeout(Duration::from_secs(5), backend.disturbed());
                (failed, noticed.await)
            })
        });
        let failed = failed.expect_err("IPv6 cannot be written");
        assert!(failed.error.family().is_some(), "{failed}");
        let answered = answers(&n.client, peer::Protocol::Tcp, VIP);
        assert_eq!(names(&answered), ["pod0", "pod1"].into());
        noticed.expect_err("nobody else has written");
    });
}

/// Stands before a program of iptables with `sed`.
fn with_sed(dir: &Path, program: &Path, before: &str, behind: &str) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nsed '{before}' | {} \"$@\" | sed '{behind}'\n",
        program.display()
    );
    let file = dir.join(program);
    write_program(&file, &script);
    file
}

/// A comment stands for whatever another version of iptables may put into the kernel for the
/// same rule.
#[test]
fn what_iptables_writes_in_another_way_is_no_drift() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(Flavour::Nft);
    let commands = &mut config.nft;
    let (there, back) = (
        "s/--comment \"/&other /",
        "s/--comment \"other /--comment \"/",
    );
    for program in [&mut commands.restore, &mut commands.restore_v6] {
        *program = with_sed(dir.path(), program, there, "");
    }
    for program in [&mut commands.save, &mut commands.save_v6] {
        *program = with_sed(dir.path(), program, "", back);
    }
    let (mut n, desired) = (Node::new(config), web(2));
    assert!(n.sync(&desired));
    let dump = n.host.must_run(&["iptables-nft-save"]);
    assert!(dump.contains("--comment \"other "), "{dump}");
    assert!(!n.sync(&desired), "iptables says that all is as it was");
    n.host
        .must_run(&["iptables-nft", "-t", "nat", "-F", "SEAWAY-SERVICES"]);
    assert!(n.sync(&desired), "and that something is gone");
    assert!(!n.sync(&desired));
    let answered = answers(&n.client, peer::Protocol::Tcp, VIP);
    assert_eq!(names(&answered), ["pod0", "pod1"].into());
}

/// What only nft can show is no reason not to repair what is ours.
#[test]
fn a_rule_of_nfts_own_does_not_keep_ours_from_being_repaired() {
    let (mut n, desired) = (Node::new(config(Flavour::Nft)), web(2));
    assert!(n.sync(&desired));
    for rule in [
        "add set ip nat others { type ipv4_addr; }",
        "add rule ip nat POSTROUTING ip saddr @others return",
        "flush chain ip nat SEAWAY-SERVICES",
    ] {
        n.host.must_run(&["nft", rule]);
    }
    assert!(n.sync(&desired));
    assert!(!n.sync(&desired));
    let answered = answers(&n.client, peer::Protocol::Tcp, VIP);
    assert_eq!(names(&answered), ["pod0", "pod1"].into());
    let others = n.host.must_run(&["nft", "list", "table", "ip", "nat"]);
    assert!(others.contains("@others return"), "{others}");
}

/// Not even where it stands among ours, and takes their packets.
#[test]
fn a_rule_of_nfts_own_goes_from_our_chains() {
    let (mut n, desired) = (Node::new(config(Flavour::Nft)), web(2));
    assert!(n.sync(&desired));
    let rule = "insert rule ip nat SEAWAY-SERVICES ip daddr 10.96.0.1 dnat to 192.0.2.1";
    n.host.must_run(&["nft", rule]);
    let save = n.host.must_run(&["iptables-nft-save"]);
    assert!(save.contains("incompatible"), "{save}");
    assert!(n.sync(&desired));
    assert!(!n.sync(&desired));
    let rules = n
        .host
        .must_run(&["nft", "list", "chain", "ip", "nat", "SEAWAY-SERVICES"]);
    assert!(!rules.contains("192.0.2.1"), "{rules}");
    let answered = answers(&n.client, peer::Protocol::Tcp, VIP);
    assert_eq!(names(&answered), ["pod0", "pod1"].into());
}
