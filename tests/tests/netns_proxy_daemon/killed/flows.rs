//! Flows of UDP: a sync has to forget those that lead to an endpoint that has gone, those of a
//! Service that has gone, and no other.

use std::net::UdpSocket;

use seaway_testbed::Netns;

/// How many clients send there. Those of IPv6 are more: where its flows are forgotten by a
/// thread of its own, what that does last is then more than what the other one does at all.
const MOVING: [(&str, usize); 2] = [("10.96.0.5:80", 12), ("[fd00:96::5]:80", 28)];
/// The Service of these is there in one state alone.
const GOING: [(&str, usize); 2] = [("10.96.0.6:80", 3), ("[fd00:96::6]:80", 3)];
const STAYING: [(&str, usize); 2] = [("10.96.0.4:80", 3), ("[fd00:96::4]:80", 3)];
/// All but the last, of which each is a flow.
pub(super) const MOVED: usize = 12 + 28 + 3 + 3;

/// Clients that never change their port.
pub(super) struct Flows {
    sockets: Vec<UdpSocket>,
}

impl Flows {
    pub(super) fn open(netns: &Netns) -> Self {
        let open = || {
            let mut sockets = Vec::new();
            for (to, clients) in [MOVING, GOING, STAYING].concat() {
                let any = if to.starts_with('[') {
                    "[::]:0"
                } else {
                    "0.0.0.0:0"
                };
                for _ in 0..clients {
                    let socket = UdpSocket::bind(any).unwrap();
                    socket.connect(to).unwrap();
                    sockets.push(socket);
                }
            }
            sockets
        };
        let sockets = netns.enter(open);
        Self { sockets }
    }

    /// A datagram of each.
    pub(super) fn send(&self) {
        for socket in &self.sockets {
            // An error of an earlier datagram is not of this one.
            socket.take_error().unwrap();
            socket.send(b"who?").unwrap();
        }
    }
}

/// None ends by itself while nobody looks, also where a daemon is dead for a minute.
pub(super) fn let_last(netns: &Netns) {
    for name in [
        "nf_conntrack_udp_timeout",
        "nf_conntrack_udp_timeout_stream",
    ] {
        netns.sysctl(&format!("netfilter/{name}"), "600");
    }
}

/// Flows that one of these answers, or would, by conntrack's numbers of them.
pub(super) fn answered_by(netns: &Netns, answering: &[&str]) -> Vec<String> {
    let parts: Vec<String> = answering.iter().map(|ip| format!("src={ip} ")).collect();
    let mut found = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let words = ["conntrack", "-L", "-f", family, "-p", "udp", "-o", "id"];
        let table = netns.must_run(&words);
        let lines = table.lines();
        let lines = lines.filter(|line| parts.iter().any(|part| line.contains(part)));
        let id = |line: &str| line.rsplit("id=").next().unwrap().to_owned();
        found.extend(lines.map(id));
    }
    found.sort();
    found
}
