//! SCTP: associations of clients that keep their ports follow the endpoints, in both families.
//!
//! Where the kernel has no sockets for it, packets are made by hand.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use seaway_proxy_core::desired::{DesiredState, Endpoint, Frontend, FrontendKind, Protocol};
use seaway_proxy_iptables::Iptables;
use seaway_testbed::Netns;
use seaway_testbed::peer::PATIENCE;

#[path = "../netns_cni/sctp/packets.rs"]
mod packets;
#[path = "../netns_cni/sctp/sockets.rs"]
mod sockets;

use crate::dual::{VIP_V6, both, entries, node, track};
use crate::node::{Node, VIP, block_on, config, each_flavour, web};
use crate::sctp::rules_load_no_module;

/// How often a server looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long nobody's answer is waited for.
const SHORT: Duration = Duration::from_millis(300);
/// Far longer than a test takes: what conntrack forgets by itself shows nothing.
const REMEMBERED: &str = "600";
const NODE_PORT: u16 = 30001;
const POD_PORT: u16 = 9090;
/// What flows that pods answer have in them.
const OF_PODS: [[&str; 2]; 2] = [
    ["src=10.244.0.2 ", "src=fd00:a:f4::2 "],
    ["src=10.244.1.2 ", "src=fd00:a:f4::1:0:2 "],
];

/// One that answers with its name at a pod's address.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(pod: &Netns, local: SocketAddr, name: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = if has_sockets() {
            let serve = pod.enter(|| sockets::server(local)).unwrap();
            std::thread::spawn(move || serve(name, &stopped))
        } else {
            let serve = pod.enter(|| packets::server(local)).unwrap();
            std::thread::spawn(move || serve(name, &stopped))
        };
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its failure has been printed, and the client has no answer.
            thread.join().ok();
        }
    }
}

/// The machines of the VM suites have them. Where the kernel has none, it does not answer by
/// itself to packets that are made by hand either.
pub(crate) fn has_sockets() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        // To try loads the module, which rules must not do.
        rules_load_no_module();
        sockets::open("127.0.0.1:0".parse().unwrap()).is_ok()
    })
}

fn servers(n: &Node) -> Vec<Server> {
    let mut servers = Vec::new();
    for (i, name) in [(0, "pod0"), (1, "pod1")] {
        for ip in [format!("10.244.{i}.2"), format!("fd00:a:f4:0:0:{i}:0:2")] {
            let local = SocketAddr::new(ip.parse().unwrap(), POD_PORT);
            servers.push(Server::start(&n.pods[i], local, name));
        }
    }
    servers
}

/// The Service at [`VIP`] and a NodePort: who answers new clients, and who still serves.
fn phone(new: &[u8], serving: &[u8]) -> DesiredState {
    let mut desired = web(0);
    desired.v4.services.retain(|name, _| name.port == "http");
    let addr = |&pod: &u8| SocketAddr::from(([10, 244, pod, 2], POD_PORT));
    for port in desired.v4.services.values_mut() {
        port.frontends[0].protocol = Protocol::Sctp;
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: NODE_PORT,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        let endpoint = |addr| Endpoint { addr, local: true };
        port.cluster = new.iter().map(addr).map(endpoint).collect();
        port.serving = serving.iter().map(addr).collect();
    }
    both(desired)
}

/// Asks as often as `tries` says, unless answered: the kernel may lose a packet while a link
/// comes up. It refuses a second association between the same ports while it has not done away
/// with the first (`EADDRNOTAVAIL`), which it may take a moment to do; hence the pause.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when the kernel is done"
)]
pub(crate) fn ask(
    from: &Netns,
    own: &str,
    to: &str,
    tries: usize,
    patience: Duration,
) -> io::Result<String> {
    let (own, to) = (own.parse().unwrap(), to.parse().unwrap());
    let once = || {
        if has_sockets() {
            sockets::ask(own, to, patience)
        } else {
            packets::ask(own, to, patience)
        }
    };
    from.enter(|| {
        let mut asked = once();
        for _ in 1..tries {
            asked = asked.or_else(|lost| {
                eprintln!("{own} to {to}, once more: {lost}");
                std::thread::sleep(4 * LOOK);
                once()
            });
        }
        asked
    })
}

/// What four clients come to, each always from the same port: a pod's and somebody's outside,
/// in either family.
fn ask_all(n: &Node, tries: usize, patience: Duration) -> Vec<io::Result<String>> {
    let clients = [
        (&n.client, "10.244.9.2:4000", VIP),
        (&n.client, "[fd00:a:f4::9:0:2]:4000", VIP_V6),
        (&n.outside, "192.168.60.2:4000", "192.168.60.1:30001"),
        (
            &n.outside,
            "[fd00:c0:a8::3c:0:2]:4000",
            "[fd00:c0:a8::3c:0:1]:30001",
        ),
    ];
    let asked = clients.map(|(from, own, to)| ask(from, own, to, tries, patience));
    asked.into()
}

#[track_caller]
fn all_answered(n: &Node, by: &str) {
    let answers = ask_all(n, 3, PATIENCE).into_iter();
    let answers: Vec<String> = answers
        .map(|answer| answer.unwrap_or_else(|error| error.to_string()))
        .collect();
    assert_eq!(answers, [by; 4]);
}

#[track_caller]
fn none_answered(n: &Node) {
    for asked in ask_all(n, 2, SHORT) {
        asked.unwrap_err();
    }
}

/// So that nothing but a clean-up takes an association away, however slow the machine is.
pub(crate) fn remember(n: &Node) {
    for state in ["closed", "cookie_wait", "established"] {
        let key = format!("netfilter/nf_conntrack_sctp_timeout_{state}");
        n.host.sysctl(&key, REMEMBERED);
    }
}

#[test]
fn associations_follow_the_endpoints_in_both_families() {
    each_flavour(|flavour| {
        let (mut n, _udp) = node(flavour);
        let _servers = servers(&n);
        n.sync(&phone(&[0], &[0]));
        remember(&n);
        all_answered(&n, "pod0");
        assert_eq!(entries(&n, "sctp", &OF_PODS[0]).len(), 4);
        n.sync(&phone(&[1], &[1]));
        assert_eq!(entries(&n, "sctp", &OF_PODS[0]), [""; 0]);
        all_answered(&n, "pod1");
        // The one that is left out still serves, so nobody is sent away from there.
        n.sync(&phone(&[0], &[0, 1]));
        assert_eq!(entries(&n, "sctp", &OF_PODS[1]).len(), 4);
        n.sync(&phone(&[0], &[0]));
        assert_eq!(entries(&n, "sctp", &OF_PODS[1]), [""; 0]);
        all_answered(&n, "pod0");
        // An endpoint goes while nobody looks.
        let started = n.host.enter(|| block_on(Iptables::new(config(flavour))));
        n.backend = started.unwrap();
        n.sync(&phone(&[1], &[1]));
        assert_eq!(entries(&n, "sctp", &OF_PODS[0]), [""; 0]);
        all_answered(&n, "pod1");
    });
}

#[test]
fn no_association_goes_on_when_its_endpoint_or_service_has_gone() {
    each_flavour(|flavour| {
        let (mut n, _udp) = node(flavour);
        let _servers = servers(&n);
        for gone in [phone(&[], &[]), DesiredState::default()] {
            n.sync(&phone(&[0], &[0]));
            remember(&n);
            all_answered(&n, "pod0");
            assert_eq!(entries(&n, "sctp", &OF_PODS[0]).len(), 4);
            n.sync(&gone);
            assert_eq!(entries(&n, "sctp", &OF_PODS[0]), [""; 0]);
            none_answered(&n);
            assert_eq!(entries(&n, "sctp", &OF_PODS[0]), [""; 0]);
        }
    });
}

/// While there were no rules, conntrack remembered that nothing is translated.
#[test]
fn an_association_that_was_tried_before_there_was_a_service_comes_to_its_endpoint() {
    each_flavour(|flavour| {
        let (mut n, _udp) = node(flavour);
        let _servers = servers(&n);
        track(&n);
        remember(&n);
        none_answered(&n);
        for vip in ["dst=10.96.0.10 ", "dst=fd00:a:60::a "] {
            assert_eq!(entries(&n, "sctp", &[vip]).len(), 1, "{vip}");
        }
        n.sync(&phone(&[0], &[0]));
        all_answered(&n, "pod0");
    });
}
