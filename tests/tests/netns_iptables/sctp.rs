//! SCTP: rules for it need no module, and clients are served: those of the kernel's sockets
//! where it has them, else of packets that are made by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Once;

use seaway_proxy_core::desired::{DesiredState, Frontend, FrontendKind, LocalSources, Protocol};
use seaway_proxy_core::interpret::{Outcome, Packet, Seen, interpret};
use seaway_testbed::peer::{self, PATIENCE};

use crate::associations::{Server, ask, has_sockets, remember};
use crate::dual::entries;
use crate::node::{Node, VIP, Who, config, each_flavour, packet, web};

const NODE_PORT: &str = "192.168.60.1:30001";
const ENDPOINT: &str = "10.244.0.2:9090";
/// The node's end of the pod's link.
const GATEWAY: &str = "10.244.0.1";

/// The Service with SCTP instead of TCP, and a NodePort.
fn desired() -> DesiredState {
    let mut desired = web(1);
    let pods = vec!["10.244.0.0/16".parse().unwrap()];
    desired.v4.local_sources = LocalSources::Networks(pods);
    for port in desired.v4.services.values_mut() {
        if port.frontends[0].protocol == Protocol::Udp {
            continue;
        }
        port.frontends[0].protocol = Protocol::Sctp;
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        port.cluster[0].addr = ENDPOINT.parse().unwrap();
        port.serving = vec![port.cluster[0].addr];
    }
    desired
}

fn module() -> bool {
    Path::new("/sys/module/sctp").exists()
}

/// Once, and before anybody opens a socket, which loads it: whoever wants one asks here first.
pub(crate) fn rules_load_no_module() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        let loaded = module();
        each_flavour(|flavour| {
            Node::new(config(flavour)).sync(&desired());
            assert_eq!(module(), loaded, "rules have loaded a module");
        });
    });
}

/// Whom the endpoint takes for the client, as the interpreter says.
#[track_caller]
fn seen_by_endpoint(n: &Node, who: Who, to: &str) -> String {
    let packet = Packet {
        protocol: Protocol::Sctp,
        ..packet(who, peer::Protocol::Tcp, to)
    };
    let outcome = interpret(&n.desired, &n.own_addresses(), &packet);
    let Outcome::Answered(by) = &outcome else {
        panic!("{to}: {outcome:?}");
    };
    let endpoint: SocketAddr = ENDPOINT.parse().unwrap();
    match by.get(&endpoint) {
        Some(Seen::Client) => packet.src.to_string(),
        Some(Seen::Node) => GATEWAY.to_owned(),
        None => panic!("{to}: {by:?}"),
    }
}

/// Cases 5, 79 and 256. The machines of the VM suites have sockets, if not before somebody asks
/// for one; this machine may have none, and then nothing loads the module at all.
#[test]
fn sctp_is_served_and_its_module_is_not_loaded_for_it() {
    rules_load_no_module();
    each_flavour(|flavour| {
        let in_machine = Path::new("/seaway/tests").exists();
        assert!(has_sockets() || !in_machine, "not in a machine");
        let mut n = Node::new(config(flavour));
        n.sync(&desired());
        remember(&n);
        let _server = Server::start(&n.pods[0], ENDPOINT.parse().unwrap(), "pod0");
        for (who, own, to) in [
            (Who::Client, "10.244.9.2:4000", VIP),
            (Who::Outside, "192.168.60.2:4000", NODE_PORT),
        ] {
            let answer = ask(n.namespace(who), own, to, 3, PATIENCE);
            assert_eq!(answer.unwrap(), "pod0", "{to}");
            // Whom it has answered, by the way back that conntrack knows.
            let back = format!("src=10.244.0.2 dst={} ", seen_by_endpoint(&n, who, to));
            let known = entries(&n, "sctp", &[back.as_str()]);
            assert_eq!(known.len(), 1, "{to}: {back}");
        }
        assert!(has_sockets() || !module(), "packets have loaded a module");
    });
}
