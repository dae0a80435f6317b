//! hostPorts of SCTP: an association comes to the pod, and the next one to the next pod.

mod packets;
mod sockets;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use seaway_testbed::peer::PATIENCE;
use seaway_testbed::{Netns, require_root};
use serde_json::Value;

use crate::hostports::{add, elements, mapping, node};
use crate::node::{Node, addresses, pod_path};

/// How often a server looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long nobody's answer is waited for.
const SHORT: Duration = Duration::from_millis(300);
/// How often somebody is asked who should answer.
const TRIES: u32 = 5;
/// Far longer than a test takes: what conntrack forgets by itself shows nothing.
const REMEMBERED: &str = "600";
/// A client of each family, and the hostPort that it asks.
const CLIENTS: [(&str, &str); 2] = [
    ("192.0.2.2:4000", "192.0.2.1:9"),
    ("[fd00:192::2]:4000", "[fd00:192::1]:9"),
];

/// A server in a pod, at the port that a hostPort leads to.
struct Server {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(pod: &Netns, result: &Value, name: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let one = |ip: String| {
            let (local, stop) = (SocketAddr::new(ip.parse().unwrap(), 80), stop.clone());
            if has_sockets() {
                let serve = pod.enter(|| sockets::server(local)).unwrap();
                std::thread::spawn(move || serve(name, &stop))
            } else {
                let serve = pod.enter(|| packets::server(local)).unwrap();
                std::thread::spawn(move || serve(name, &stop))
            }
        };
        let threads = addresses(result).into_iter().map(one).collect();
        Self { stop, threads }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its failure has been printed, and the client has no answer.
            thread.join().ok();
        }
    }
}

/// The machines of the VM suites have them. Where the kernel has none, it does not answer by
/// itself to packets that are made by hand either.
fn has_sockets() -> bool {
    sockets::open("127.0.0.1:0".parse().unwrap()).is_ok()
}

/// Always from the same port.
fn ask(from: &Netns, (own, to): (&str, &str), patience: Duration) -> io::Result<String> {
    let (own, to) = (own.parse().unwrap(), to.parse().unwrap());
    from.enter(|| {
        if has_sockets() {
            sockets::ask(own, to, patience)
        } else {
            packets::ask(own, to, patience)
        }
    })
}

/// Who answers, asked again if nobody does: emulated kernels have been seen to lose what
/// follows a handshake. That nothing is in the way that was there before is not hidden by that,
/// see [`REMEMBERED`].
#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when the kernel has done away with the first association"
)]
fn answer(from: &Netns, client: (&str, &str)) -> String {
    for _ in 1..TRIES {
        match ask(from, client, PATIENCE) {
            Ok(answer) => return answer,
            Err(error) => eprintln!("{client:?}: {error}, once more"),
        }
        std::thread::sleep(SHORT);
    }
    ask(from, client, PATIENCE).unwrap_or_else(|error| panic!("{client:?}: {error}"))
}

/// So that nothing but the plugin takes a flow away, however slow the machine is.
fn remember(node: &Node) {
    for state in ["closed", "cookie_wait", "established"] {
        let key = format!("netfilter/nf_conntrack_sctp_timeout_{state}");
        node.netns.sysctl(&key, REMEMBERED);
    }
}

/// What conntrack has of SCTP to pods.
fn flows(node: &Node) -> Vec<String> {
    let mut all = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let words = ["conntrack", "-L", "-f", family, "-p", "sctp"];
        let text = node.netns.must_run(&words);
        let to_pods = |line: &&str| line.contains("=10.244.1.") || line.contains("=fd00:1:2:");
        all.extend(text.lines().filter(to_pods).map(str::to_owned));
    }
    all
}

#[test]
fn case_42_68_associations_follow_the_port_from_pod_to_pod() {
    if !require_root() {
        return;
    }
    let (mut node, outside) = node();
    let ports = [mapping("", 9, "SCTP")];
    for (id, next) in [("first", "second"), ("second", "third")] {
        let pod = Netns::new("pod");
        let result = add(&mut node, id, &pod, &ports);
        let elements = elements(&node);
        assert!(
            elements.iter().any(|e| e.contains("sctp . 9 : 10.244.1.")),
            "{elements:?}"
        );
        remember(&node);
        let server = Server::start(&pod, &result, id);
        for client in CLIENTS {
            assert_eq!(answer(&outside, client), id, "{client:?}, before {next}");
        }
        assert_eq!(flows(&node).len(), 2);
        node.del(id, pod_path(&pod));
        assert_eq!(flows(&node), [""; 0], "{id}");
        drop(server);
    }
    assert_eq!(elements(&node), [""; 0]);
}

/// While nobody had the port, the host itself was asked, and said no.
#[test]
fn case_42_an_association_that_was_refused_comes_to_the_pod() {
    if !require_root() {
        return;
    }
    let ((mut node, outside), pod) = (node(), Netns::new("pod"));
    // From the first hostPort on, the node translates, and so knows flows.
    add(&mut node, "before", &pod, &[mapping("", 80, "tcp")]);
    node.del("before", pod_path(&pod));
    remember(&node);
    for client in CLIENTS {
        ask(&outside, client, SHORT).unwrap_err();
    }
    let ports = [
        mapping("192.0.2.1", 9, "SCTP"),
        mapping("fd00:192::1", 9, "SCTP"),
    ];
    let result = add(&mut node, "pod", &pod, &ports);
    let elements = elements(&node);
    let want = "192.0.2.1 . sctp . 9 : 10.244.1.3 . 80";
    assert!(elements.iter().any(|e| e == want), "{elements:?}");
    let _server = Server::start(&pod, &result, "pod");
    for client in CLIENTS {
        assert_eq!(answer(&outside, client), "pod", "{client:?}");
    }
}
