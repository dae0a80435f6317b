//! Switching IPv6 forwarding on, as the first ADD with IPv6 does, beside what others do meanwhile.

use seaway_testbed::{Netns, require_root, strace_is_missing};

use crate::node::{Node, pod_path, success};
use crate::trace::traced;

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// A node that does not forward yet, with links of these names that listen to routers.
fn node(listening: &[&str]) -> Node {
    let node = Node::with_ranges(&BOTH);
    for (place, name) in listening.iter().enumerate() {
        node.netns
            .ip(&format!("link add {name} type veth peer name far{place}"));
        node.netns
            .sysctl(&format!("ipv6/conf/{name}/accept_ra"), "1");
    }
    assert_eq!(read(&node, "all/forwarding"), "0");
    node
}

fn read(node: &Node, key: &str) -> String {
    let path = format!("/proc/sys/net/ipv6/conf/{key}");
    let text = node.netns.enter(|| std::fs::read_to_string(path)).unwrap();
    text.trim().to_owned()
}

/// CVE-2020-10749: the other ADD is about to make it deaf, and may have done so already.
#[test]
fn a_pods_end_that_another_add_is_making_is_not_told_to_listen() {
    if !require_root() {
        return;
    }
    let (node, pod) = (node(&["up0", "sw0123456789ab"]), Netns::new("pod"));
    node.add("c1", &pod);
    assert_eq!(read(&node, "all/forwarding"), "1");
    assert_eq!(read(&node, "up0/accept_ra"), "2");
    assert_eq!(read(&node, "sw0123456789ab/accept_ra"), "1");
}

#[test]
fn a_link_that_goes_before_it_is_told_to_listen_fails_no_add() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (node(&["up0", "up1"]), Netns::new("pod"));
    // It is opened first to be read, and then, as if the link were gone, to be written.
    let gone = "/proc/sys/net/ipv6/conf/up0/accept_ra";
    let inject = "inject=?open,openat:error=ENOENT:when=2";
    let options = ["-f", "-o", "/dev/null", "-P", gone, "-e", inject];
    success(&traced(&node, "ADD", "c1", pod_path(&pod), &options));
    // The error was there, and all else was done.
    assert_eq!(read(&node, "up0/accept_ra"), "1");
    assert_eq!(read(&node, "up1/accept_ra"), "2");
    assert_eq!(read(&node, "all/forwarding"), "1");
}
