//! A topology is what its words say.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use seaway_testbed::peer::Protocol::{Tcp, Udp};
use seaway_testbed::{Topology, require_root};

#[test]
fn everybody_reaches_everybody_without_translation() {
    if !require_root() {
        return;
    }
    let net = Topology::new()
        .node("a")
        .pod("web")
        .pod("client")
        .node("b")
        .pod("web")
        .build();
    let _near = net.get("a/web").serve(Tcp, "0.0.0.0:80", "near");
    let _far = net.get("b/web").serve(Tcp, "0.0.0.0:80", "far");
    let _dns = net.get("b/web").serve(Udp, "0.0.0.0:53", "dns");
    for (from, source) in [
        ("a/client", "10.244.1.3"),
        ("a/web", "10.244.1.2"),
        ("b", "172.30.0.12"),
        ("outside", "172.30.0.1"),
    ] {
        let near = net.get(from).ask(Tcp, "10.244.1.2:80").unwrap();
        assert_eq!(near.name, "near", "from {from}");
        let own = from == "a/web";
        assert!(
            own || near.client.ip().to_string() == source,
            "from {from}: {near}"
        );
        assert_eq!(
            net.get(from).ask_tcp("10.244.2.2:80").unwrap(),
            "far",
            "from {from}"
        );
        let dns = net.get(from).ask(Udp, "10.244.2.2:53").unwrap();
        assert_eq!(dns.name, "dns", "from {from}");
    }
    let nobody = net.get("a/client").ask_tcp("10.96.0.10:53").unwrap_err();
    assert_ne!(
        nobody.kind(),
        std::io::ErrorKind::ConnectionRefused,
        "nothing leads on: {nobody}"
    );
}
