//! NodePorts, load balancer IPs and external IPs: where they are served, and to whom.

use super::{
    CLUSTER_IP, ETP_LOCAL, EXTERNAL_IP, LOCALHOST, NODE_PORT, NODE_PORT_2, PLAIN, RANGES, Table,
    VIP, VIP_2, by_prefix, node_cidr, one_network,
};
use crate::flows::Client::{Blocked, FarPod, Loopback, Node, NodeAsVip, Outside, Pod};
use crate::node::{Detect, NodePorts};

pub(super) fn node_ports(t: &mut Table) {
    t.given(PLAIN, "h1 t1");
    t.row(&[60], Outside, NODE_PORT, "h1 t1 as node");
    t.row(&[60], Outside, NODE_PORT_2, "h1 t1 as node");
    t.row(&[61], Node, NODE_PORT, "h1 t1 as node");
    t.row(&[62], Pod, NODE_PORT, "h1 t1 as node");
    t.row(&[63, 66], Loopback, LOCALHOST, "h1 t1 as node");
    t.row(&[78], NodeAsVip, "1.2.3.4:30001", "h1 t1 as node");
    // The same address and port as load balancer IP, which comes first and lets nobody in.
    t.given(
        r#"{"ports": [{"name": "http", "port": 30001, "nodePort": 30001}],
            "loadBalancerSourceRanges": ["203.0.113.0/25"]}"#,
        "h1 t1",
    );
    t.row(&[78], NodeAsVip, "1.2.3.4:30001", "unanswered");
    t.row(&[78], Outside, NODE_PORT, "h1 t1 as node");
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

pub(super) fn external_policy(t: &mut Table) {
    t.given(PLAIN, "h1 t1");
    t.row(&[80], Pod, NODE_PORT, "h1 t1 as node");
    t.row(&[80, 98], Pod, VIP, "h1 t1 as node");
    t.row(&[80, 102], Pod, EXTERNAL_IP, "h1 t1 as node");
    t.external(&[81], Outside, "h1 t1 as node");
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
    t.given(r#"{"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}"#, "h1");
    t.row(&[98], Pod, VIP, "h1 as node");
    t.given(r#"{"ports": [{"name": "http", "port": 80}]}"#, "h1");
    t.row(&[100], Outside, VIP, "h1 as node");
    t.row(&[100], Outside, NODE_PORT, "untouched");
    t.given_on(|n| n.external_ips = false, PLAIN, "h1");
    t.row(&[103], Outside, EXTERNAL_IP, "untouched");
}

/// One Service, and its NodePort on the node with the endpoint, on the client's own, and on
/// a third one.
pub(super) fn three_nodes(t: &mut Table) {
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
    // And back, while it is served.
    t.given(ETP_LOCAL, "t1");
    t.row(&[101], Outside, NODE_PORT, "unanswered");
    t.given(ETP_LOCAL, "h1");
    t.row(&[101], Outside, NODE_PORT, "h1 as client");
}

/// Who counts as a pod for the short circuit.
pub(super) fn sources(t: &mut Table) {
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

pub(super) fn source_ranges(t: &mut Table) {
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
    t.row(&[126], NodeAsVip, VIP_2, "h1 t1 as node");
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
