//! Nodes in, and what node `a` needs as text out.

use super::*;
use crate::{Paths, PodRoutes, Settings};

mod carrier;
mod own_node;
mod refused;
mod routes;
mod uplink;

fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn node(name: &str, ips: &str, cidrs: &str) -> Node {
    Node {
        name: name.to_owned(),
        created: None,
        internal_ips: list(ips),
        pod_cidrs: list(cidrs),
    }
}

fn own() -> Node {
    node("a", "172.30.0.11 fd01::11", "10.244.0.0/24 fd00:0::/64")
}

fn settings(mode: PodRoutes) -> Settings {
    let cluster = ["10.244.0.0/16", "fd00::/48"];
    Settings {
        mode,
        cluster_cidrs: cluster.map(|cidr| cidr.parse().unwrap()).to_vec(),
        ..Settings::default()
    }
}

/// What node `a` wants, or what it waits for, as text; without its own lines.
fn text(nodes: impl IntoIterator<Item = Node>, settings: &Settings, paths: &Paths) -> String {
    let nodes = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
    let got = match desired("a", &nodes, settings, paths, None) {
        Ok(desired) => desired.to_string(),
        Err(waiting) => format!("waiting {waiting}\n"),
    };
    let own = ["pod-cidr", "vxlan", "address", "no-masquerade"];
    let lines = got.lines();
    let lines = lines.filter(|line| !own.iter().any(|own| line.starts_with(own)));
    lines.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(mode: PodRoutes, nodes: impl IntoIterator<Item = Node>, expect: &str) {
    assert_eq!(text(nodes, &settings(mode), &Paths::default()), expect);
}
