//! Flows of UDP: a sync has to forget those that lead to an endpoint that has gone, and no other.

use std::net::UdpSocket;

use seaway_testbed::Netns;

/// How many clients send there. Those of IPv6 are more: where its flows are forgotten by a
/// thread of its own, what that does last is then more than what the other one does at all.
const MOVING: [(&str, usize); 2] = [("10.96.0.5:80", 12), ("[fd00:96::5]:80", 28)];
const STAYING: [(&str, usize); 2] = [("10.96.0.4:80", 3), ("[fd00:96::4]:80", 3)];
/// All of the former, of which each is a flow.
pub(super) const MOVED: usize = 12 + 28;

/// Clients that never change their port.
pub(super) struct Flows {
    sockets: Vec<UdpSocket>,
}

impl Flows {
    pub(super) fn open(netns: &Netns) -> Self {
        let open = || {
            let mut sockets = Vec::new();
            for (to, clients) in MOVING.into_iter().chain(STAYING) {
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

/// Which flows of both families a pod answers, by conntrack's numbers of them.
pub(super) fn to_pod(netns: &Netns, pod: u8) -> Vec<String> {
    let parts = [
        format!("src=10.244.0.{pod} "),
        format!("src=fd00:244::{pod} "),
    ];
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
