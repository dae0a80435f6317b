//! The rows. Grouped by sections A to H of the acceptance list.

use super::Client::{self, Blocked, Endpoint, FarPod, Loopback, Node, NodeAsVip, Outside, Pod};
use super::{Flow, Given};
use crate::desired::{Family, Protocol};
use crate::node::{self, Detect, NodePorts};

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

fn cluster_ip(t: &mut Table) {
    t.given(PLAIN, "h1");
    t.row(&[1], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[2], Endpoint, CLUSTER_IP, "h1 as node");
    t.row(&[6], Pod, "172.30.0.41:81", "untouched");
    t.row_by(Protocol::Udp, &[6], Pod, CLUSTER_IP, "untouched");
    t.row(&[8], Pod, "172.30.0.50:80", "untouched");
    t.given(PLAIN, "h1 t1");
    t.row(&[3, 27, 118], Pod, CLUSTER_IP, "h1 t1 as client");
    t.row(&[11], Node, CLUSTER_IP, "h1 t1 as node");
    t.row(&[12], Outside, CLUSTER_IP, "h1 t1 as node");
    t.given(
        r#"{"ports": [{"name": "http", "port": 53, "nodePort": 30001},
                      {"name": "udp", "port": 53, "protocol": "UDP", "nodePort": 30001}]}"#,
        "h1 t1",
    );
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        t.row_by(protocol, &[5], Pod, "172.30.0.41:53", "h1 t1 as client");
        t.row_by(protocol, &[76], Outside, NODE_PORT, "h1 t1 as node");
    }
    t.given(
        r#"{"ports": [{"name": "sctp", "port": 53, "protocol": "SCTP", "nodePort": 30001}]}"#,
        "h1",
    );
    t.row_by(Protocol::Sctp, &[5], Pod, "172.30.0.41:53", "h1 as client");
    t.row_by(Protocol::Sctp, &[79], Outside, NODE_PORT, "h1 as node");
    t.given(
        r#"{"ports": [{"name": "http", "port": 443, "nodePort": 30001}]}"#,
        "h1 t1",
    );
    t.row(&[4], Pod, "172.30.0.41:443", "h1 t1 as client");
    t.row(&[7], Pod, CLUSTER_IP, "untouched");
    t.given_on(|n| n.detect = Detect::Off, PLAIN, "h1 t1");
    t.row(&[13], Node, CLUSTER_IP, "h1 t1 as client");
    t.row(&[13], Outside, CLUSTER_IP, "h1 t1 as client");
    t.given_on(|n| n.masquerade_all = true, PLAIN, "h1 t1");
    t.row(&[14], Pod, CLUSTER_IP, "h1 t1 as node");
    t.given_on(
        |n| {
            n.masquerade_all = true;
            n.detect = Detect::Off;
        },
        PLAIN,
        "h1 t1",
    );
    t.row(&[15], Pod, CLUSTER_IP, "h1 t1 as node");
    t.given_on(node_cidr, PLAIN, "h1");
    t.row(&[16], FarPod, CLUSTER_IP, "h1 as node");
    t.given_on(
        |n| n.detect = Detect::Interface("pod0".to_owned()),
        PLAIN,
        "h1",
    );
    t.row(&[17], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[17], Node, CLUSTER_IP, "h1 as node");
    t.given_on(by_prefix, PLAIN, "h1");
    t.row(&[18], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[18], Outside, CLUSTER_IP, "h1 as node");
    t.given(r#"{"clusterIP": "None"}"#, "h1");
    t.row(&[19], Pod, CLUSTER_IP, "untouched");
    t.given(r#"{"type": "ExternalName"}"#, "h1");
    t.row(&[20], Pod, CLUSTER_IP, "untouched");
    t.given(r#"{"ports": [{"name": "p80", "port": 80}]}"#, "h1");
    t.row(&[24], Pod, CLUSTER_IP, "refused");
    t.given(r#"{"ports": [{"name": "udp", "port": 80}]}"#, "h1");
    t.row(&[25], Pod, CLUSTER_IP, "refused");
    t.given(
        r#"{"clusterIP": "172.30.0.041", "externalIPs": ["192.168.099.011"]}"#,
        "h1",
    );
    t.row(&[31], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[31], Outside, EXTERNAL_IP, "h1 as node");
    t.given(PLAIN, "n1");
    t.row(&[33], Pod, CLUSTER_IP, "n1 as client");
    t.row(&[34], Node, CLUSTER_IP, "n1 as node");
    t.given(PLAIN, "h1:node=");
    t.row(&[35], Pod, CLUSTER_IP, "h1 as client");
    t.given(ETP_LOCAL, "h1:node=");
    t.row(&[35], Outside, VIP, "unanswered");
}

fn node_cidr(node: &mut node::Node) {
    node.detect = Detect::Networks(vec!["10.180.0.0/24".parse().expect("this is a network")]);
}

fn by_prefix(node: &mut node::Node) {
    node.detect = Detect::InterfacePrefix("pod".to_owned());
}

fn no_endpoints(t: &mut Table) {
    t.given(PLAIN, "");
    t.row(&[40], Pod, CLUSTER_IP, "refused");
    t.external(&[41, 43, 44], Outside, "refused");
    t.external(&[42, 44], Pod, "refused");
    t.external(&[45], Node, "refused");
    t.row(&[40], Node, CLUSTER_IP, "refused");
    t.given(
        r#"{"ports": [{"name": "udp", "port": 80, "protocol": "UDP"}]}"#,
        "",
    );
    t.row_by(Protocol::Udp, &[50], Pod, CLUSTER_IP, "refused");
    t.given(PLAIN, "h1:gone t1:gone");
    t.row(&[46, 145], Pod, CLUSTER_IP, "refused");
    t.row(&[46, 145], Outside, VIP, "refused");
    t.given(PLAIN, "h1:starting");
    t.row(&[47], Pod, CLUSTER_IP, "refused");
    // The other quirk of 51: the port of an address that is not served is left alone.
    t.given_on(|n| n.node_ports = one_network(), PLAIN, "");
    t.row(&[51], Outside, NODE_PORT, "refused");
    t.row(&[51], Outside, NODE_PORT_2, "untouched");
    t.given(RANGES, "");
    t.row(&[52], Blocked, VIP, "unanswered");
    t.row(&[53], Outside, VIP, "refused");
}

fn one_network() -> NodePorts {
    NodePorts::Networks(vec!["192.168.0.0/24".parse().expect("this is a network")])
}

fn node_ports(t: &mut Table) {
    t.given(PLAIN, "h1 t1");
    t.row(&[60], Outside, NODE_PORT, "h1 t1 as node");
    t.row(&[60], Outside, NODE_PORT_2, "h1 t1 as node");
    t.row(&[61], Node, NODE_PORT, "h1 t1 as node");
    t.row(&[62], Pod, NODE_PORT, "h1 t1 as node");
    t.row(&[63, 66], Loopback, LOCALHOST, "h1 t1 as node");
    t.row(&[78], NodeAsVip, "1.2.3.4:30001", "h1 t1 as node");
    t.given_on(|n| n.localhost_node_ports = false, PLAIN, "h1 t1");
    t.row(&[64], Loopback, LOCALHOST, "untouched");
    t.given_on(
        |n| {
            n.localhost_node_ports = false;
            n.node_ports = NodePorts::Networks(vec!["127.0.0.1/32".parse().expect("a network")]);
        },
        PLAIN,
        "h1 t1",
    );
    t.row(&[65], Loopback, LOCALHOST, "untouched");
    t.given_on(|n| n.node_ports = one_network(), PLAIN, "h1 t1");
    t.row(&[68], Outside, NODE_PORT, "h1 t1 as node");
    t.row(&[68], Outside, NODE_PORT_2, "untouched");
    t.given_on(
        |n| {
            let list = ["192.168.0.0/24", "192.168.1.0/24", "2001:db8::/64"];
            let networks = list.map(|text| text.parse().expect("this is a network"));
            n.node_ports = NodePorts::Networks(networks.to_vec());
        },
        PLAIN,
        "h1 t1",
    );
    t.row(&[69], Outside, NODE_PORT_2, "h1 t1 as node");
    // Decided otherwise than kube-proxy: docs/decisions.md.
    t.given_on(
        |n| n.node_ports = NodePorts::Networks(vec!["2001:db8::/64".parse().expect("a network")]),
        PLAIN,
        "h1 t1",
    );
    t.row(&[70], Outside, NODE_PORT, "untouched");
    t.given_on(|n| n.node_ports = NodePorts::Primary, PLAIN, "h1 t1");
    t.row(&[71, 72], Outside, NODE_PORT, "h1 t1 as node");
    t.row(&[71, 72], Outside, NODE_PORT_2, "untouched");
    // Likewise.
    t.given_on(
        |n| {
            n.node_ports = NodePorts::Primary;
            n.addresses.clear();
        },
        PLAIN,
        "h1 t1",
    );
    t.row(&[73], Outside, NODE_PORT, "untouched");
}

fn external_policy(t: &mut Table) {
    t.given(PLAIN, "h1 t1");
    t.external(&[80], Pod, "h1 t1 as node");
    t.external(&[81, 98, 102], Outside, "h1 t1 as node");
    t.given(ETP_LOCAL, "h1 t1");
    t.external(&[82], Outside, "h1 as client");
    t.external(&[83], Pod, "h1 t1 as client");
    t.external(&[85, 86], Node, "h1 t1 as node");
    t.row(&[87], Loopback, LOCALHOST, "h1 t1 as node");
    t.row(&[88], Pod, CLUSTER_IP, "h1 t1 as client");
    t.row(&[89], Node, CLUSTER_IP, "h1 t1 as node");
    t.row(&[89], Outside, CLUSTER_IP, "h1 t1 as node");
    t.given_on(|n| n.detect = Detect::Off, ETP_LOCAL, "h1 t1");
    t.external(&[84], Pod, "h1 as client");
    t.given(
        r#"{"type": "NodePort", "externalTrafficPolicy": "Local", "externalIPs": null, "ingress": []}"#,
        "h1 t1",
    );
    t.row(&[82], Outside, NODE_PORT, "h1 as client");
    t.given(ETP_LOCAL, "t1");
    t.external(&[90], Outside, "unanswered");
    t.external(&[91], Pod, "t1 as client");
    t.external(&[92], Node, "t1 as node");
    t.given(
        r#"{"type": "ClusterIP", "externalTrafficPolicy": "Local", "ingress": [],
            "ports": [{"name": "http", "port": 80}]}"#,
        "h1 t1",
    );
    t.row(&[95], Outside, EXTERNAL_IP, "h1 as client");
    t.given(
        r#"{"type": "ClusterIP", "externalTrafficPolicy": "Local", "externalIPs": null,
            "ports": [{"name": "http", "port": 80, "nodePort": 30001}]}"#,
        "h1 t1",
    );
    t.row(&[96], Outside, NODE_PORT, "h1 t1 as node");
    t.given(
        r#"{"ingress": [{"ip": "1.2.3.4", "ipMode": "Proxy"}, {"hostname": "lb"}]}"#,
        "h1",
    );
    t.row(&[97, 99], Pod, VIP, "untouched");
    t.given(r#"{"ports": [{"name": "http", "port": 80}]}"#, "h1");
    t.row(&[100], Outside, VIP, "h1 as node");
    t.row(&[100], Outside, NODE_PORT, "untouched");
    t.given_on(|n| n.external_ips = false, PLAIN, "h1");
    t.row(&[103], Outside, EXTERNAL_IP, "untouched");
}

/// One Service, and its NodePort on the node with the endpoint, on the client's own, and on
/// a third one.
fn three_nodes(t: &mut Table) {
    t.given(ETP_LOCAL, "h1");
    t.row(&[101], Outside, NODE_PORT, "h1 as client");
    t.given(ETP_LOCAL, "t1");
    t.row(&[101], Node, NODE_PORT, "t1 as node");
    t.row(&[101], Outside, NODE_PORT, "unanswered");
    t.given(PLAIN, "h1");
    t.row(&[101], Outside, NODE_PORT, "h1 as node");
    t.given(PLAIN, "t1");
    t.row(&[101], Node, NODE_PORT, "t1 as node");
    t.row(&[101], Outside, NODE_PORT, "t1 as node");
}

/// Who counts as a pod for the short circuit.
fn sources(t: &mut Table) {
    t.given(ETP_LOCAL, "h1 t1");
    t.row(&[93], FarPod, NODE_PORT, "h1 t1 as client");
    t.given_on(node_cidr, ETP_LOCAL, "h1 t1");
    t.row(&[94], FarPod, NODE_PORT, "h1 as client");
    t.given_on(node_cidr, ETP_LOCAL, "t1");
    t.row(&[94], FarPod, NODE_PORT, "unanswered");
    t.given_on(by_prefix, ETP_LOCAL, "h1 t1");
    t.row(&[94], FarPod, NODE_PORT, "h1 as client");
    t.row(&[83], Pod, NODE_PORT, "h1 t1 as client");
}

fn internal_policy(t: &mut Table) {
    t.given(ITP_LOCAL, "h1 t1");
    t.row(&[110], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[111], Node, CLUSTER_IP, "h1 as node");
    t.row(&[112], Outside, CLUSTER_IP, "h1 as node");
    t.external(&[114], Pod, "h1 t1 as node");
    t.external(&[114], Outside, "h1 t1 as node");
    t.given(ITP_LOCAL, "n1 t1");
    t.row(&[115], Pod, CLUSTER_IP, "n1 as client");
    t.given(ITP_LOCAL, "t1");
    t.row(&[113], Pod, CLUSTER_IP, "unanswered");
    t.row(&[113], Node, CLUSTER_IP, "unanswered");
    t.given(BOTH_LOCAL, "t1");
    t.row(&[116], Pod, VIP, "t1 as client");
    t.row(&[116], Pod, CLUSTER_IP, "unanswered");
    t.given(ITP_LOCAL, "");
    t.row(&[117], Pod, CLUSTER_IP, "refused");
}

const RANGES: &str = r#"{"loadBalancerSourceRanges": ["192.168.0.0/24", " 203.0.113.0/25"]}"#;

fn source_ranges(t: &mut Table) {
    t.given(RANGES, "h1 t1");
    t.row(&[120], Outside, VIP, "h1 t1 as node");
    t.row(&[120], Outside, VIP_2, "h1 t1 as node");
    t.row(&[121], Blocked, VIP, "unanswered");
    t.row(&[121], Blocked, VIP_2, "unanswered");
    t.row(&[122], Blocked, NODE_PORT, "h1 t1 as node");
    t.row(&[123], Pod, VIP, "unanswered");
    t.row(&[124], Pod, CLUSTER_IP, "h1 t1 as client");
    t.row(&[125], Node, VIP, "h1 t1 as node");
    t.row(&[126], NodeAsVip, VIP, "h1 t1 as node");
    t.row(&[130], Blocked, EXTERNAL_IP, "h1 t1 as node");
    t.given(
        r#"{"loadBalancerSourceRanges": ["203.0.113.0/25"]}"#,
        "h1 t1",
    );
    t.row(&[127], NodeAsVip, VIP, "unanswered");
    t.given(
        r#"{"loadBalancerSourceRanges": ["203.0.113.0/25", "0.0.0.0/0"]}"#,
        "h1 t1",
    );
    t.row(&[128], Blocked, VIP, "h1 t1 as node");
    t.given(
        r#"{"loadBalancerSourceRanges": ["203.0.113.0/25"], "externalTrafficPolicy": "Local"}"#,
        "h1 t1",
    );
    t.row(&[131], Pod, VIP, "unanswered");
    t.row(&[131], Outside, VIP, "h1 as client");
    t.given(
        r#"{"loadBalancerSourceRanges": ["203.0.113.000/025", "nonsense"]}"#,
        "h1 t1",
    );
    t.row(&[31, 133], Outside, VIP, "h1 t1 as node");
    t.row(&[31, 133], Blocked, VIP, "unanswered");
    t.given(
        r#"{"loadBalancerSourceRanges": ["203.0.113.0/25"], "externalIPs": ["1.2.3.4"]}"#,
        "h1 t1",
    );
    t.row(&[134], Blocked, VIP, "unanswered");
    t.given(
        r#"{"loadBalancerSourceRanges": ["0.0.0.0/1", "128.0.0.0/1"]}"#,
        "h1 t1",
    );
    t.row(&[135], Blocked, VIP, "h1 t1 as node");
    t.row(&[135], Pod, VIP, "h1 t1 as node");
    t.given(r#"{"loadBalancerSourceRanges": ["255.0.0.0/32"]}"#, "h1 t1");
    t.row(&[132, 136], Outside, VIP, "unanswered");
    t.row(&[136], Pod, VIP, "unanswered");
    // The same Service, changed while it is served.
    t.given(PLAIN, "h1 t1");
    t.row(&[132], Outside, VIP, "h1 t1 as node");
    // Another family's alone: docs/decisions.md.
    t.given(
        r#"{"loadBalancerSourceRanges": ["2001:db8::/32"]}"#,
        "h1 t1",
    );
    t.row(&[129], Outside, VIP, "unanswered");
}

fn terminating(t: &mut Table) {
    t.given(ETP_LOCAL, "h1 h2 h3:leaving h4:gone t5");
    t.row(&[140], Pod, CLUSTER_IP, "h1 h2 t5 as client");
    t.row(&[141], Outside, VIP, "h1 h2 as client");
    t.given(ETP_LOCAL, "h2:leaving h3:leaving h4:gone t5");
    t.row(&[142], Pod, CLUSTER_IP, "t5 as client");
    t.row(&[143], Outside, VIP, "h2 h3 as client");
    t.given(ETP_LOCAL, "t5:leaving");
    t.row(&[144], Pod, CLUSTER_IP, "t5 as client");
    t.row(&[144], Outside, VIP, "unanswered");
    t.given(PLAIN, "h1 h2 t3:leaving t4:gone t5");
    t.row(&[146], Pod, CLUSTER_IP, "h1 h2 t5 as client");
    t.row(&[146], Outside, VIP, "h1 h2 t5 as node");
    t.given(PLAIN, "h2:leaving h3:leaving h4:gone t5:leaving");
    t.row(&[147], Pod, CLUSTER_IP, "h2 h3 t5 as client");
    t.row(&[147], Outside, NODE_PORT, "h2 h3 t5 as node");
    t.given(ITP_LOCAL, "h1:leaving t1");
    t.row(&[148], Pod, CLUSTER_IP, "h1 as client");
    t.given(PLAIN, "h1:published");
    t.row(&[149], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[149], Outside, NODE_PORT, "h1 as node");
    // The same pod, without publishNotReadyAddresses.
    t.given(PLAIN, "h1:gone");
    t.row(&[150], Pod, CLUSTER_IP, "refused");
    t.row(&[150], Outside, NODE_PORT, "refused");
    t.given(PLAIN, "h1:leaving:zones=b t1:leaving:zones=a");
    t.row(&[151], Pod, CLUSTER_IP, "h1 t1 as client");
}

const TWO_ZONES: &str = "h1:zones=a t2:zones=a h3:zones=b t4:zones=b";

fn topology(t: &mut Table) {
    t.given(PLAIN, TWO_ZONES);
    t.row(&[160], Pod, CLUSTER_IP, "h1 t2 as client");
    t.row(&[174], Outside, NODE_PORT, "h1 t2 as node");
    t.given_on(|n| n.zone = Some("b".to_owned()), PLAIN, TWO_ZONES);
    t.row(&[175], Pod, CLUSTER_IP, "h3 t4 as client");
    t.given_on(|n| n.zone = None, PLAIN, TWO_ZONES);
    t.row(&[162], Pod, CLUSTER_IP, "h1 t2 h3 t4 as client");
    t.given_on(|n| n.zone = Some(String::new()), PLAIN, TWO_ZONES);
    t.row(&[162], Pod, CLUSTER_IP, "h1 t2 h3 t4 as client");
    t.given_on(|n| n.zone = Some("c".to_owned()), PLAIN, TWO_ZONES);
    t.row(&[163], Pod, CLUSTER_IP, "h1 t2 h3 t4 as client");
    t.given(
        r#"{"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}"#,
        TWO_ZONES,
    );
    t.row(&[176], Pod, CLUSTER_IP, "h1 t2 as client");
    t.given(ETP_LOCAL, TWO_ZONES);
    t.row(&[171], Outside, VIP, "h1 h3 as client");
    t.row(&[171], Pod, VIP, "h1 t2 as client");
    t.row(&[171], Pod, CLUSTER_IP, "h1 t2 as client");
    t.given(ITP_LOCAL, TWO_ZONES);
    t.row(&[172], Pod, CLUSTER_IP, "h1 h3 as client");
    t.given(ETP_LOCAL, "h1:zones=b t2:zones=a");
    t.row(&[173], Pod, CLUSTER_IP, "t2 as client");
    t.row(&[173], Outside, VIP, "h1 as client");
    for (cases, endpoints, expect) in HINTS {
        t.given(PLAIN, endpoints);
        t.row(cases, Pod, CLUSTER_IP, expect);
    }
}

/// Hints that the node in zone a follows, or does not.
const HINTS: [(&[u16], &str, &str); 9] = [
    (&[161], "h1:zones=a t2", "h1 t2 as client"),
    (
        &[164],
        "h1:unready:zones=a t2:zones=b h3:zones=b",
        "t2 h3 as client",
    ),
    (&[165], "h1:zones=a t2:zones=b h3:unready", "h1 as client"),
    (&[166], "h1:zones=a,b t2:zones=b", "h1 as client"),
    (&[167], "h1:nodes=n1 t2:nodes=n2", "h1 as client"),
    (
        &[168],
        "h1:nodes=n3:zones=b t2:nodes=n2:zones=a",
        "t2 as client",
    ),
    (&[169], "h1:nodes=n1:zones=b t2:zones=a", "t2 as client"),
    (
        &[170],
        "h1:unready:nodes=n1:zones=a t2:nodes=n2:zones=a t3:nodes=n3:zones=b",
        "t2 as client",
    ),
    (
        &[170],
        "h1:unready:nodes=n1:zones=a t2:unready:nodes=n2:zones=a t3:nodes=n3:zones=b",
        "t3 as client",
    ),
];
