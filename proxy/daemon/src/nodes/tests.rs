use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::config::ServiceProxy;
use crate::metrics::Metrics;

fn node(name: &str, cidr: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": cidr, "podCIDRs": [cidr] },
        "status": { "addresses": [
            { "type": "Hostname", "address": name },
            { "type": "InternalIP", "address": "172.30.0.11" },
            { "type": "ExternalIP", "address": "192.0.2.1" },
        ] },
    }))
    .unwrap()
}

fn feed() -> Arc<Feed> {
    Feed::new(Metrics::register(
        &mut Registry::default(),
        ServiceProxy::Off,
    ))
}

fn intake() -> (Intake, Arc<Health>, watch::Receiver<Nodes>) {
    let health = Arc::new(Health::new(std::time::Duration::from_mins(1)));
    let intake = Intake::new("a".to_owned(), health.clone(), feed());
    let nodes = intake.nodes();
    (intake, health, nodes)
}

fn names(nodes: &watch::Receiver<Nodes>) -> Vec<String> {
    nodes.borrow().by_name.keys().cloned().collect()
}

#[test]
fn reads_the_fields_that_matter() {
    let got = read(&node("a", "10.244.0.0/24"));
    assert_eq!(got.internal_ips, ["172.30.0.11"]);
    assert_eq!(got.pod_cidrs, ["10.244.0.0/24"]);
    let mut old = node("a", "10.244.0.0/24");
    old.spec.as_mut().unwrap().pod_cidrs = None;
    assert_eq!(read(&old).pod_cidrs, ["10.244.0.0/24"]);
    assert_eq!(got.created, None);
    old.metadata.creation_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(read(&old).created, Some(1_767_225_600));
    let empty = read(&Node::default());
    assert_eq!((empty.internal_ips.len(), empty.pod_cidrs.len()), (0, 0));
}

#[test]
fn a_relist_removes_what_it_does_not_name() {
    let (mut intake, _health, mut nodes) = intake();
    intake.take(Event::Init);
    intake.take(Event::InitApply(node("a", "10.244.0.0/24")));
    intake.take(Event::InitApply(node("b", "10.244.1.0/24")));
    assert!(!nodes.borrow().listed);
    intake.take(Event::InitDone);
    assert!(nodes.borrow_and_update().listed);
    intake.take(Event::Init);
    intake.take(Event::InitApply(node("a", "10.244.0.0/24")));
    assert_eq!(names(&nodes), ["a", "b"]);
    assert!(!nodes.has_changed().unwrap());
    intake.take(Event::InitDone);
    assert_eq!(names(&nodes), ["a"]);
}

#[test]
fn a_heartbeat_wakes_nobody() {
    let (mut intake, _health, mut nodes) = intake();
    intake.take(Event::Apply(node("a", "10.244.0.0/24")));
    assert!(nodes.has_changed().unwrap());
    nodes.mark_unchanged();
    let mut same = node("a", "10.244.0.0/24");
    same.metadata.resource_version = Some("2".to_owned());
    intake.take(Event::Apply(same));
    assert!(!nodes.has_changed().unwrap());
    intake.take(Event::Apply(node("a", "10.244.7.0/24")));
    assert!(nodes.has_changed().unwrap());
}

#[test]
fn eligibility_follows_the_own_node() {
    let (mut intake, health, _nodes) = intake();
    let now = tokio::time::Instant::now();
    let eligible = || health.healthz(now).0;
    intake.take(Event::Apply(node("b", "10.244.1.0/24")));
    assert!(!eligible());
    intake.take(Event::Apply(node("a", "10.244.0.0/24")));
    assert!(eligible());
    let mut tainted = node("a", "10.244.0.0/24");
    tainted.spec.as_mut().unwrap().taints = Some(vec![
        serde_json::from_value(json!({ "key": TO_BE_DELETED, "effect": "NoSchedule" })).unwrap(),
    ]);
    intake.take(Event::Apply(tainted));
    assert!(!eligible());
    intake.take(Event::Apply(node("a", "10.244.0.0/24")));
    let mut dying = node("a", "10.244.0.0/24");
    dying.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    intake.take(Event::Apply(dying));
    assert!(!eligible());
    intake.take(Event::Delete(node("a", "10.244.0.0/24")));
    assert!(!eligible());
}

#[test]
fn the_own_nodes_zone_addresses_and_ranges_are_read() {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "a", "labels": { ZONE: "z1" } },
        "spec": { "podCIDRs": ["10.244.0.1/24", "fd00::/64", "wrong"] },
        "status": { "addresses": [
            { "type": "ExternalIP", "address": "2001:db8::1" },
            { "type": "ExternalIP", "address": "192.0.2.1" },
            { "type": "InternalIP", "address": "no address" },
            { "type": "InternalIP", "address": "172.30.0.11" },
            { "type": "InternalIP", "address": "172.30.0.12" },
            { "type": "Hostname", "address": "a" },
        ] },
    }))
    .unwrap();
    let own = own(&node);
    assert_eq!(own.zone.as_deref(), Some("z1"));
    let addresses: Vec<_> = own.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["172.30.0.11", "2001:db8::1"]);
    let cidrs: Vec<_> = own.pod_cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(cidrs, ["10.244.0.0/24", "fd00::/64"]);
}

#[test]
fn only_the_own_node_and_only_a_change_reaches_services() {
    let feed = feed();
    let mut intake = Intake::new(
        "a".to_owned(),
        Arc::new(Health::new(std::time::Duration::from_mins(1))),
        feed.clone(),
    );
    let generation = || feed.progress().borrow().generation;
    intake.take(Event::Apply(node("b", "10.244.1.0/24")));
    assert_eq!((feed.node(), generation()), (None, 0));
    intake.take(Event::Apply(node("a", "10.244.0.0/24")));
    assert_eq!(generation(), 1);
    intake.take(Event::Apply(node("a", "10.244.0.0/24")));
    intake.take(Event::Delete(node("a", "10.244.0.0/24")));
    assert_eq!(generation(), 1);
    assert!(feed.node().is_some(), "the deleted one is not forgotten");
}
