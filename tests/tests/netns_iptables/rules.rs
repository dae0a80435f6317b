//! What is in the kernel: ours as rendered, everybody else's as it was.

use std::collections::BTreeSet;
use std::time::Instant;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{DesiredState, LocalSources};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour, Iptables, Rendered};
use seaway_testbed::peer::Protocol;
use seaway_testbed::{Netns, XTABLES_WAIT, require_root};

use crate::node::{Node, VIP, Who, block_on, config, each_flavour, in_v6, many, web};

const FOREIGN: &str = r#"*nat
:DOCKER - [0:0]
:SEAWAYS - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80
-A POSTROUTING -s 172.17.0.0/16 -j MASQUERADE
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -i docker0 -m comment --comment "not ours: -j SEAWAY-SERVICES" -j ACCEPT
-A OUTPUT -j KUBE-FIREWALL
COMMIT
*mangle
:KUBE-IPTABLES-HINT - [0:0]
COMMIT"#;

#[test]
fn what_is_read_back_is_what_was_written() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        // From small to large and back, by differences and from nothing.
        for mut desired in [
            web(2),
            many(300, 3),
            web(1),
            web(0),
            many(40, 7),
            DesiredState::default(),
        ] {
            let networks = ["10.244.0.0/16".parse().unwrap()];
            desired.v4.local_sources = LocalSources::Networks(networks.to_vec());
            // Both families at once: the second half says the same in IPv6.
            desired.v6 = in_v6(&desired.v4);
            assert!(n.sync(&desired));
            let rendered = n.backend.render(&desired);
            assert_eq!(n.read_in_full().to_string(), rendered.to_string());
            assert_eq!(n.read_back(), rendered);
            assert_eq!(n.read_without_save(), rendered);
            assert!(!n.sync(&desired), "a second round finds nothing to do");
        }
        n.remove_all();
        for tables in ["iptables", "ip6tables"] {
            let dump = n.host.must_run(&[format!("{tables}-{flavour}-save")]);
            assert!(!dump.contains("SEAWAY"), "{dump}");
        }
    });
}

#[test]
fn every_number_of_endpoints_reads_back_as_written() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        let mut desired = many(1, 150);
        assert!(n.sync(&desired));
        assert!(!n.sync(&desired), "probabilities down to 1 in 150");
        desired = many(3, 1);
        assert!(n.sync(&desired));
        assert!(!n.sync(&desired));
    });
}

#[test]
fn foreign_rules_stay_and_ours_go_without_a_trace() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.restore(flavour, FOREIGN);
        let before = n.dump(flavour);
        n.sync(&many(100, 2));
        let with_ours = n.dump(flavour);
        for line in before.lines() {
            assert!(with_ours.lines().any(|l| l == line), "{line} is gone");
        }
        let first = with_ours
            .lines()
            .find(|line| line.starts_with("-A PREROUTING"))
            .unwrap();
        assert!(
            first.contains("SEAWAY-SERVICES"),
            "ours come first: {first}"
        );
        n.remove_all();
        assert_eq!(n.dump(flavour), before);
        n.remove_all();
        assert_eq!(
            n.dump(flavour),
            before,
            "removing what is not there is no error"
        );
    });
}

#[test]
fn damage_is_found_and_repaired() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        let good = n.dump(flavour);
        for damage in [
            "*nat\n-F SEAWAY-SERVICES\nCOMMIT",
            "*nat\n-F PREROUTING\nCOMMIT",
            "*nat\n-A OUTPUT -j SEAWAY-SERVICES\nCOMMIT",
            "*nat\n:SEAWAY-SVC-0000000000000000 - [0:0]\nCOMMIT",
            "*filter\n-F\n-X\nCOMMIT",
            "*nat\n-F\n-X\nCOMMIT",
        ] {
            n.restore(flavour, damage);
            assert_ne!(n.dump(flavour), good, "{damage}");
            assert!(n.sync(&web(2)), "{damage}");
            assert_eq!(n.dump(flavour), good, "{damage}");
            n.ask(Who::Client, Protocol::Tcp, VIP).unwrap();
        }
    });
}

/// Case 241.
#[test]
fn counters_of_services_that_do_not_change_are_kept() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&many(20, 2));
        for _ in 0..5 {
            n.client.ask_tcp(VIP).unwrap();
        }
        let counted = |n: &Node| {
            let dump = n
                .host
                .must_run(&[&format!("iptables-{flavour}-save"), "-c", "-t", "nat"]);
            let lines = dump.lines().filter(|line| line.contains("default/web"));
            let lines = lines.filter(|line| line.starts_with('[') && !line.starts_with("[0:0]"));
            lines.map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let before = counted(&n);
        assert!(!before.is_empty());
        // One endpoint of another.
        let mut changed = many(20, 2);
        let mut others = changed.v4.services.iter_mut();
        let (_, other) = others.find(|(name, _)| name.name == "svc-3").unwrap();
        other.cluster.pop().unwrap();
        assert!(n.sync(&changed));
        assert_eq!(counted(&n), before);
    });
}

#[test]
fn a_refused_transaction_is_an_error_and_changes_nothing() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        let before = n.dump(flavour);
        // The kernel has more than `have` says, so a chain cannot be deleted.
        n.restore(
            flavour,
            "*nat\n:OTHER - [0:0]\n-A OTHER -j SEAWAY-HAIRPIN\nCOMMIT",
        );
        let have = n.backend.render(&web(2));
        let backend = &mut n.backend;
        let applied = n
            .host
            .enter(|| block_on(backend.apply(&have, &Rendered::default())));
        let error = applied.unwrap_err();
        assert_eq!(error.to_string(), format!("write the {flavour} rules"));
        let nat = |dump: &str| {
            let ours = dump
                .lines()
                .filter(|l| l.starts_with("-A") && l.contains("SEAWAY-SVC-"));
            ours.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(nat(&n.dump(flavour)), nat(&before), "nat is as it was");
        n.ask(Who::Client, Protocol::Tcp, VIP).unwrap();
        // With what is really there everything is put right.
        n.sync(&web(1));
        n.remove_all();
        assert!(!n.dump(flavour).contains("SEAWAY-SVC"));
    });
}

#[test]
fn the_flavour_of_the_node_is_found() {
    each_flavour(|flavour| {
        let node = Netns::new("node");
        let detect = || {
            node.enter(|| block_on(Iptables::new(Config::default())))
                .unwrap()
        };
        assert_eq!(detect().flavour(), Flavour::Nft, "with nothing to go by");
        let rule = "*filter\n-A INPUT -i lo -j ACCEPT\nCOMMIT";
        let restore = format!("iptables-{flavour}-restore {XTABLES_WAIT} --noflush");
        let script = format!("printf '{rule}\\n' | {restore}");
        node.must_run(&["sh", "-c", &script]);
        assert_eq!(detect().flavour(), flavour);
    });
}

#[test]
fn flavours_are_not_mixed() {
    each_flavour(|flavour| {
        let other = match flavour {
            Flavour::Nft => Flavour::Legacy,
            Flavour::Legacy => Flavour::Nft,
        };
        let mut n = Node::new(config(flavour));
        n.sync(&web(2));
        assert!(
            !n.dump(other).contains("SEAWAY"),
            "the other flavour is not touched"
        );
        n.backend = n
            .host
            .enter(|| block_on(Iptables::new(config(other))))
            .unwrap();
        n.flavour = other;
        n.sync(&web(2));
        assert!(
            !n.dump(flavour).contains("SEAWAY"),
            "the former flavour is cleared"
        );
        assert!(n.dump(other).contains("SEAWAY-SERVICES"));
    });
}

#[test]
fn a_table_that_only_nft_can_show_is_read_and_not_taken_for_empty() {
    if !require_root() {
        return;
    }
    let mut n = Node::new(config(Flavour::Nft));
    n.sync(&web(2));
    let nft = |n: &Node, command: &str| n.host.must_run(&["nft", command]);
    nft(
        &n,
        "add chain ip nat base { type nat hook prerouting priority 10; }",
    );
    assert!(!n.sync(&web(2)), "a chain beside ours does not hide them");

    nft(&n, "add chain ip nat other");
    nft(&n, "add rule ip nat other dnat to 192.0.2.1");
    assert!(!n.sync(&web(2)), "nor does a rule of nft's own");
    assert!(n.sync(&web(1)) && !n.sync(&web(1)));
    // Who wants to see them is told why iptables does not show them.
    let backend = &mut n.backend;
    let read = || block_on(backend.read_in_full());
    let error = n.host.enter(read).unwrap_err();
    let mut error: &dyn std::error::Error = &error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    let why = "the nat table holds something that only nft can show";
    assert_eq!(error.to_string(), why);
}

/// Others' rules among ours, which have no words here, are read by iptables, and put right.
#[test]
fn rules_that_are_not_understood_are_repaired() {
    if !require_root() {
        return;
    }
    let mut n = Node::new(config(Flavour::Nft));
    n.sync(&web(2));
    let before = n.dump(Flavour::Nft);
    for rule in [
        "-t nat -I SEAWAY-SERVICES -m limit --limit 1/sec -j RETURN",
        "-t nat -I POSTROUTING -m length --length 1:2 -j SEAWAY-POSTROUTING",
    ] {
        n.host
            .must_run(&["sh", "-c", &format!("iptables-nft {rule}")]);
        assert!(n.sync(&web(2)), "{rule}");
        assert_eq!(n.dump(Flavour::Nft), before);
    }
}

#[test]
fn iptables_that_is_not_installed_is_named() {
    if !require_root() {
        return;
    }
    let mut config = config(Flavour::Nft);
    config.nft.restore = "/nowhere/iptables-restore".into();
    let mut n = Node::new(config);
    let backend = &mut n.backend;
    let round = || block_on(sync_once(backend, None, &web(1)));
    let error = n.host.enter(round).unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        (error.to_string().as_str(), why.as_str()),
        ("write the nft rules", "start /nowhere/iptables-restore")
    );
    assert_eq!(
        error.error.retry(),
        seaway_proxy_core::backend::Retry::Never
    );
}

#[test]
#[ignore = "a measurement: prints how long restores take"]
fn restore_times() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        for (services, endpoints) in [(2_000, 4), (10_000, 10)] {
            let desired = many(services, endpoints);
            let timed = |n: &mut Node, what: &str, desired: &DesiredState| {
                let start = Instant::now();
                n.sync(desired);
                eprintln!(
                    "{flavour} {services}x{endpoints} {what}: {:?}",
                    start.elapsed()
                );
            };
            timed(&mut n, "from nothing", &desired);
            timed(&mut n, "read back, nothing to do", &desired);
            let mut changed = desired.clone();
            changed
                .v4
                .services
                .last_entry()
                .unwrap()
                .get_mut()
                .cluster
                .pop();
            let (have, want) = (n.backend.render(&desired), n.backend.render(&changed));
            let start = Instant::now();
            let backend = &mut n.backend;
            n.host
                .enter(|| block_on(backend.apply(&have, &want)))
                .unwrap();
            eprintln!(
                "{flavour} {services}x{endpoints} one endpoint: {:?}",
                start.elapsed()
            );
            n.remove_all();
        }
    });
}
