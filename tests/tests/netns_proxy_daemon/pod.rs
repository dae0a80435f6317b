//! A pod that is a namespace of its own: what it sends comes to the node from outside, by
//! PREROUTING, and not by OUTPUT as what the node itself sends.

use seaway_testbed::{Netns, connect};

use crate::node::Node;

/// In the cluster's ranges of both families; it reaches what is on the node.
pub(crate) fn pod(node: &Node) -> Netns {
    let pod = Netns::new("pod");
    let ends = ("10.244.9.1/24", "10.244.9.2/24");
    connect(&node.netns, "pod0", ends.0, &pod, "eth0", ends.1);
    pod.ip("route add default via 10.244.9.1");
    let ends = ("fd00:244:0:9::1/64", "fd00:244:0:9::2/64");
    node.netns
        .ip(&format!("addr add {} dev pod0 nodad", ends.0));
    pod.ip(&format!("addr add {} dev eth0 nodad", ends.1));
    pod.ip("-6 route add default via fd00:244:0:9::1");
    pod
}
