//! Kernel settings of a live pod's interface, which somebody has altered.

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, addresses};
use crate::verbs::{add, mapping, repair};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// As `sysctl` names them, each with a value that cuts the pod off or opens the node to it.
const ALTERED: [(&str, &str); 6] = [
    ("net.ipv4.conf.IF.forwarding", "0"),
    ("net.ipv4.conf.IF.send_redirects", "1"),
    ("net.ipv4.conf.IF.route_localnet", "0"),
    ("net.ipv4.conf.IF.rp_filter", "1"),
    ("net.ipv6.conf.IF.accept_ra", "2"),
    // It takes address, routes and neighbours along.
    ("net.ipv6.conf.IF.disable_ipv6", "1"),
];

#[test]
fn altered_settings_of_a_live_pods_interface_are_repaired() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    node.netns.sysctl("ipv4/conf/all/rp_filter", "0");
    node.netns.sysctl("ipv4/conf/default/rp_filter", "1");
    let (web, other) = (Netns::new("web"), Netns::new("other"));
    let added = add(&mut node, "web", &web, &[mapping("", 8080, "tcp")]);
    node.add("other", &other);
    let ifname = added["interfaces"][0]["name"].as_str().unwrap();
    let of_web = ALTERED.map(|(key, bad)| (key.replace("IF", ifname), bad));
    let now = || {
        let value =
            |(key, _): &(String, &str)| node.netns.must_run(&["sysctl", "-n", key.as_str()]);
        of_web.iter().map(value).collect::<Vec<_>>().concat()
    };
    let before = now();
    assert_eq!(before, "1\n0\n1\n2\n0\n0\n");
    assert_eq!(repair(&node)["settings"], 0);
    let _server = web.serve(Tcp, "[::]:80", "web");
    let [v4, v6] = addresses(&added).try_into().unwrap();
    for (key, bad) in &of_web {
        let line = format!("{key}={bad}");
        node.netns.must_run(&["sysctl", "-qw", line.as_str()]);
        assert_ne!(now(), before, "{line}");
        let repaired = repair(&node);
        assert_eq!(repaired["settings"], 1, "{line}: {repaired}");
        assert_eq!(repaired["failures"], json!([]), "{line}");
        assert_eq!(now(), before, "{line}");
        for to in [format!("{v4}:80"), format!("[{v6}]:80")] {
            assert_eq!(other.ask_tcp(&to).unwrap(), "web", "{line}");
        }
        let again = repair(&node);
        assert_eq!(
            (&again["settings"], &again["routes"]),
            (&json!(0), &json!(0))
        );
    }
    for id in ["web", "other"] {
        node.del(id, "");
    }
    node.assert_empty();
}
