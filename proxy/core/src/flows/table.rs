//! The rows. Grouped by sections A to H of the acceptance list.

use super::{Client, Flow, Given};
use crate::desired::{Family, Protocol};
use crate::node::{self, Detect, NodePorts};

mod cluster_ip;
mod endpoints;
mod external;

use cluster_ip::{cluster_ip, no_endpoints};
use endpoints::{internal_policy, terminating, topology};
use external::{external_policy, node_ports, source_ranges, sources, three_nodes};

const CLUSTER_IP: &str = "172.30.0.41:80";
const NODE_PORT: &str = "192.168.0.2:30001";
const NODE_PORT_2: &str = "192.168.1.2:30001";
const LOCALHOST: &str = "127.0.0.1:30001";
const VIP: &str = "1.2.3.4:80";
const VIP_2: &str = "5.6.7.8:80";
const EXTERNAL_IP: &str = "192.168.99.11:80";
/// All that eTP applies to.
const EXTERNAL: [&str; 3] = [NODE_PORT, VIP, EXTERNAL_IP];

const PLAIN: &str = "{}";
const ETP_LOCAL: &str = r#"{"externalTrafficPolicy": "Local"}"#;
const ITP_LOCAL: &str = r#"{"internalTrafficPolicy": "Local"}"#;
const BOTH_LOCAL: &str = r#"{"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"}"#;
const RANGES: &str = r#"{"loadBalancerSourceRanges": ["192.168.0.0/24", " 203.0.113.0/25"]}"#;

/// Collects rows of one world after the other.
struct Table {
    rows: Vec<Flow>,
    given: Given,
}

impl Table {
    fn given(&mut self, spec: &'static str, endpoints: &'static str) {
        self.given_on(|_| {}, spec, endpoints);
    }

    fn given_on(&mut self, node: fn(&mut node::Node), spec: &'static str, endpoints: &'static str) {
        self.given = Given {
            spec,
            endpoints,
            node,
        };
    }

    fn row(&mut self, cases: &'static [u16], from: Client, to: &'static str, expect: &'static str) {
        self.row_by(Protocol::Tcp, cases, from, to, expect);
    }

    fn row_by(
        &mut self,
        protocol: Protocol,
        cases: &'static [u16],
        from: Client,
        to: &'static str,
        expect: &'static str,
    ) {
        self.rows.push(Flow {
            cases,
            family: Family::V4,
            given: self.given,
            from,
            to,
            protocol,
            expect,
        });
    }

    /// The same to NodePort, load balancer IP and external IP.
    fn external(&mut self, cases: &'static [u16], from: Client, expect: &'static str) {
        for to in EXTERNAL {
            self.row(cases, from, to, expect);
        }
    }
}

/// All rows, in IPv4.
pub fn flows() -> Vec<Flow> {
    let mut table = Table {
        rows: Vec::new(),
        given: Given {
            spec: PLAIN,
            endpoints: "",
            node: |_| {},
        },
    };
    cluster_ip(&mut table);
    no_endpoints(&mut table);
    node_ports(&mut table);
    external_policy(&mut table);
    three_nodes(&mut table);
    sources(&mut table);
    internal_policy(&mut table);
    source_ranges(&mut table);
    terminating(&mut table);
    topology(&mut table);
    table.rows
}

fn node_cidr(node: &mut node::Node) {
    node.detect = Detect::Networks(vec!["10.180.0.0/24".parse().expect("this is a network")]);
}

fn by_prefix(node: &mut node::Node) {
    node.detect = Detect::InterfacePrefix("pod".to_owned());
}

fn one_network() -> NodePorts {
    NodePorts::Networks(vec!["192.168.0.0/24".parse().expect("this is a network")])
}
