//! The cluster fixture on stock parts: what upstream's programs can do here, so that a failure
//! of ours is not the fixture's.

use std::time::Duration;

use seaway_testbed::cluster::{AGNHOST, Cluster, ClusterOptions, NodeOptions};
use seaway_testbed::require_root;

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn a_service_of_stock_parts_answers() {
    if !require_root() {
        return;
    }
    let cluster = Cluster::start(&ClusterOptions::two(NodeOptions::stock())).unwrap();
    cluster.apply(&web(AGNHOST)).unwrap();
    cluster.wait_available("web", MINUTE).unwrap();
    let ip = cluster.cluster_ip("web").unwrap();
    for node in cluster.nodes() {
        let names = node.hosts_behind(&format!("{ip}:80"), 30).unwrap();
        assert_eq!(names.len(), 2, "{} sees {names:?}", node.name());
    }
    for pod in cluster.pods("app=web").unwrap() {
        let name = cluster
            .exec(&pod, &["nslookup", "web.default.svc.cluster.local"])
            .unwrap();
        assert!(name.contains(&ip), "DNS in {pod}: {name}");
        let answer = cluster
            .exec(&pod, &["wget", "-qO-", "http://web/hostname"])
            .unwrap();
        assert!(answer.starts_with("web-"), "{answer}");
    }
}

fn web(image: &str) -> String {
    seaway_testbed::cluster::web_deployment("web", image, 2)
}
