//! Cluster IPs, and Services that nobody answers for.

use super::{
    CLUSTER_IP, ETP_LOCAL, EXTERNAL_IP, NODE_PORT, NODE_PORT_2, PLAIN, RANGES, Table, VIP,
    by_prefix, node_cidr, one_network,
};
use crate::desired::Protocol;
use crate::flows::Client::{Blocked, Endpoint, FarPod, Node, Outside, Pod};
use crate::node::Detect;

/// The number of a NodePort on some other host.
const ELSEWHERE: &str = "198.51.100.7:30001";

pub(super) fn cluster_ip(t: &mut Table) {
    t.given(PLAIN, "h1");
    t.row(&[1], Pod, CLUSTER_IP, "h1 as client");
    t.row(&[2], Endpoint, CLUSTER_IP, "h1 as node");
    t.row(&[6], Pod, "172.30.0.41:81", "untouched");
    t.row_by(Protocol::Udp, &[6], Pod, CLUSTER_IP, "untouched");
    t.row(&[8], Pod, "172.30.0.50:80", "untouched");
    // No range of addresses is asked for, so none can come too late for a Service.
    t.given(r#"{"clusterIP": "203.0.113.78"}"#, "h1");
    t.row(&[10], Pod, "203.0.113.78:80", "h1 as client");
    t.row(&[9], Pod, "203.0.113.79:80", "untouched");
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
    t.row_by(Protocol::Udp, &[209], Pod, ELSEWHERE, "untouched");
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

pub(super) fn no_endpoints(t: &mut Table) {
    t.given(PLAIN, "h1");
    t.row(&[49], Pod, CLUSTER_IP, "h1 as client");
    t.given(PLAIN, "");
    t.row(&[40, 48, 49], Pod, CLUSTER_IP, "refused");
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
    // What a pod that was evicted is, until its slice is without it.
    t.given(PLAIN, "h1:unready");
    t.row(&[48], Pod, CLUSTER_IP, "refused");
    // The other quirk of 51: the port of an address that is not served is left alone.
    t.given_on(|n| n.node_ports = one_network(), PLAIN, "");
    t.row(&[51], Outside, NODE_PORT, "refused");
    t.row(&[51], Outside, NODE_PORT_2, "untouched");
    t.given(RANGES, "");
    t.row(&[52], Blocked, VIP, "unanswered");
    t.row(&[53], Outside, VIP, "refused");
}
