//! Rounds that do not come to their end.

use std::fs;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{DesiredState, Family};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::Config;

use super::{OF_POD0, all_answered, clients, dns, none_answered, restart};
use crate::dual::{entries, node, track};
use crate::lacking::no_rule;
use crate::node::{block_on, config, each_flavour};

#[test]
fn a_failed_round_does_not_lose_the_clean_up() {
    each_flavour(|flavour| {
        let (mut n, _servers) = node(flavour);
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        // A round that has written its rules and died before it came to conntrack.
        let backend = &mut n.backend;
        let half_done = || {
            let want = backend.render(&dns(&[1], &[1]));
            block_on(async {
                let have = backend.read_back().await.unwrap();
                backend.apply(&have, &want).await.unwrap();
            });
        };
        n.host.enter(half_done);
        assert!(!n.sync(&dns(&[1], &[1])), "the rules are there");
        all_answered(&clients, "pod1");
    });
}

/// Flows that are removed before the rules are there come back by the old ones.
#[test]
fn a_family_that_cannot_be_written_is_cleaned_up_for_when_it_can() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let (mut n, _servers) = node(flavour);
        let mut config = config(flavour);
        for commands in [&mut config.nft, &mut config.legacy] {
            let refusal = no_rule(flavour);
            commands.restore = refusal.of("10.244.1.2", dir.path(), &commands.restore);
        }
        restart(&mut n, config);
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        fs::write(dir.path().join("lacks"), "").unwrap();
        let desired = dns(&[1], &[1]);
        let backend = &mut n.backend;
        let failed = n
            .host
            .enter(|| block_on(sync_once(backend, None, &desired)));
        let failed = failed.expect_err("IPv4 cannot be written");
        assert_eq!(failed.error.family(), Some(Family::V4), "{failed}");
        let told: Vec<Family> = failed.settled.iter().map(|one| one.family).collect();
        assert_eq!(told, [Family::V6]);
        let (v4, v6) = clients.split_at(clients.len() / 2);
        all_answered(v4, "pod0");
        all_answered(v6, "pod1");
        fs::remove_file(dir.path().join("lacks")).unwrap();
        assert!(n.sync(&desired));
        all_answered(&clients, "pod1");
    });
}

/// Nothing but a memory tells that its flows were a Service's: its rules may be gone, too.
#[test]
fn a_service_that_goes_while_the_daemon_is_dead_takes_its_flows_along() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            run_dir: dir.path().to_owned(),
            ..config(flavour)
        };
        let (mut n, _servers) = node(flavour);
        restart(&mut n, config.clone());
        n.sync(&dns(&[0], &[0]));
        let clients = clients(&n);
        all_answered(&clients, "pod0");
        // Somebody else's, which was never a Service's.
        track(&n);
        restart(&mut n, config.clone());
        n.sync(&DesiredState::default());
        assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
        none_answered(&clients, "pod0");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // The death comes after the rules, and before their flows.
        n.sync(&dns(&[0], &[0]));
        all_answered(&clients, "pod0");
        let backend = &mut n.backend;
        let half_done = || {
            let none = DesiredState::default();
            let want = backend.render(&none);
            block_on(async {
                let have = backend.read_back().await.unwrap();
                backend.prepare(&none);
                backend.apply(&have, &want).await.unwrap();
            });
        };
        n.host.enter(half_done);
        restart(&mut n, config);
        assert!(!n.sync(&DesiredState::default()), "the rules are gone");
        assert_eq!(entries(&n, "udp", &OF_POD0), [""; 0]);
        none_answered(&clients, "pod0");
    });
}
