use std::io;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use seaway_podnet::{Changes, Node, PodRoutes, Settings};

use super::*;
use crate::config::ServiceProxy;

fn node(name: &str, ips: &[&str], cidr: &str) -> (String, Node) {
    let node = Node {
        name: name.to_owned(),
        created: None,
        internal_ips: ips.iter().map(|ip| (*ip).to_owned()).collect(),
        pod_cidrs: vec![cidr.to_owned()],
    };
    (name.to_owned(), node)
}

/// Node a, which knows b, with `--uplink eth1`.
fn node_a(registry: &mut Registry) -> PodNetworkLoop {
    let a = node("a", &["172.30.0.11", "172.31.0.11"], "10.244.0.0/24");
    let b = node("b", &["172.30.0.12", "172.31.0.12"], "10.244.1.0/24");
    let nodes = Nodes {
        listed: true,
        by_name: [a, b].into(),
    };
    let settings = Settings {
        mode: PodRoutes::Vxlan,
        uplink: Some("eth1".to_owned()),
        ..Settings::default()
    };
    PodNetworkLoop {
        node_name: "a".to_owned(),
        config: PodNetworkConfig {
            settings,
            cni_conf_dir: "/nowhere".into(),
            run_dir: "/nowhere".into(),
        },
        nodes: watch::Sender::new(nodes).subscribe(),
        services_synced: watch::Sender::new(true).subscribe(),
        proven: watch::Sender::new(Some(Paths::default())).subscribe(),
        probing: watch::Sender::default(),
        promise: watch::Sender::default(),
        health: Arc::new(Health::new(Duration::ZERO)),
        metrics: Metrics::register(registry, ServiceProxy::Off),
        repair: Arc::new(Notify::new()),
        stop: CancellationToken::new(),
    }
}

#[tokio::test]
async fn the_conf_says_whether_addresses_stick() {
    for sticky in [false, true] {
        let mut a = node_a(&mut Registry::default());
        a.config.settings.sticky_addresses = sticky;
        let mut memory = Memory::default();
        let want = a.want(&mut memory, Ok(None)).await.unwrap().unwrap();
        a.publish(&want, 1400);
        let promise = a.promise.borrow().clone().unwrap();
        assert_eq!(promise.conf.sticky, sticky);
    }
}

fn failures(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let mut lines = text.lines();
    let line = lines.find_map(|l| l.strip_prefix("seaway_pod_network_sync_failures_total "));
    line.unwrap().to_owned()
}

#[tokio::test]
async fn a_look_at_the_uplink_that_fails_is_no_reason_to_send_another_way() {
    let mut registry = Registry::default();
    let mut a = node_a(&mut registry);
    let mut memory = Memory::default();
    let want = a.want(&mut memory, Ok(None)).await.unwrap().unwrap();
    memory.held = Some((want, None));
    let interrupted = PodNetworkError::Sysctl {
        path: "a list".to_owned(),
        source: io::ErrorKind::Interrupted.into(),
    };
    let got = a.want(&mut memory, Err(interrupted)).await.unwrap();
    assert_eq!(got, Err(false));
    assert!(memory.held.is_none());
    assert_eq!(failures(&registry), "1");
    let fresh = a.health.part(POD_NETWORK).unwrap();
    assert!(!fresh.done);
}

#[tokio::test]
async fn a_peers_route_that_cannot_be_written_makes_no_node_ill_and_a_failed_round_does() {
    let mut registry = Registry::default();
    let mut a = node_a(&mut registry);
    a.health.set_node_eligible(true);
    let mut memory = Memory::default();
    let want = a.want(&mut memory, Ok(None)).await.unwrap().unwrap();
    for (failure, healthy) in [(None, true), (Some("no uplink".to_owned()), false)] {
        let foreign = PodNetworkError::ForeignRoute {
            cidr: "10.244.1.0/24".parse().unwrap(),
            via: "172.30.0.12".parse().unwrap(),
        };
        let changes = Changes {
            failed: vec![foreign],
            ..Changes::default()
        };
        let outcome = Outcome {
            changes: Some(changes),
            failure,
            ..Outcome::default()
        };
        // Whatever waits has waited for too long.
        a.health.queued(POD_NETWORK, Instant::now());
        a.ended(&mut memory, want.clone(), &outcome);
        let now = Instant::now();
        assert_eq!(a.health.healthz(now).0, healthy);
        assert!(a.health.livez(now).0);
        assert!(!a.health.part(POD_NETWORK).unwrap().done);
    }
    assert_eq!(failures(&registry), "2");
}
