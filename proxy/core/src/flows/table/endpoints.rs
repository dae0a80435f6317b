//! Which endpoints are chosen: policy Local, those that terminate, topology hints.

use super::{BOTH_LOCAL, CLUSTER_IP, ETP_LOCAL, ITP_LOCAL, NODE_PORT, PLAIN, Table, VIP};
use crate::flows::Client::{Node, Outside, Pod};

pub(super) fn internal_policy(t: &mut Table) {
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

pub(super) fn terminating(t: &mut Table) {
    t.given(ETP_LOCAL, "h1 h2 h3:leaving h4:gone t5");
    t.row(&[140], Pod, CLUSTER_IP, "h1 h2 t5 as client");
    t.row(&[141], Outside, VIP, "h1 h2 as client");
    t.given(ETP_LOCAL, "h2:leaving h3:leaving h4:gone t5");
    t.row(&[142], Pod, CLUSTER_IP, "t5 as client");
    t.row(&[143], Outside, VIP, "h2 h3 as client");
    // The load balancer is told that nobody is here, and what still comes is served.
    t.given(ETP_LOCAL, "h1:leaving");
    t.row(&[222], Outside, NODE_PORT, "h1 as client");
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

pub(super) fn topology(t: &mut Table) {
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
