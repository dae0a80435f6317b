//! A node with more around it: a client outside, another node with pods, and a load of
//! connections.
//!
//! ```text
//!  client 192.0.2.2 ─ uplink ┬ node: pods 10.244.0.5 and .6 on lo ┬ far1 ─ other: pod 10.244.1.7
//! ```

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use seaway_testbed::peer::{self, PATIENCE, Protocol};
use seaway_testbed::{Netns, connect};

use crate::node::{API, Daemon, Node};
use seaway_testbed::fake_api::FakeApi;

/// The node's own address for clients.
pub(crate) const NODE_ADDRESS: &str = "192.0.2.1";

pub(crate) struct Wide {
    pub(crate) api: FakeApi,
    pub(crate) client: Netns,
    pub(crate) other: Netns,
    pub(crate) node: Node,
}

impl Wide {
    pub(crate) fn new() -> Self {
        let node = Node::new();
        let host = &node.netns;
        host.sysctl("ipv4/ip_forward", "1");
        host.ip("addr add 10.244.0.6/32 dev lo");
        let client = Netns::new("client");
        let ends = ("192.0.2.1/24", "192.0.2.2/24");
        connect(host, "uplink", ends.0, &client, "eth0", ends.1);
        client.ip("route add default via 192.0.2.1");
        let other = Netns::new("other");
        let ends = ("172.31.0.1/24", "172.31.0.2/24");
        connect(host, "far1", ends.0, &other, "eth0", ends.1);
        other.ip("addr add 10.244.1.7/32 dev lo");
        other.ip("route add default via 172.31.0.1");
        host.ip("route add 10.244.1.7 via 172.31.0.2");
        let api = FakeApi::start(host, API.parse().unwrap(), None);
        Self {
            api,
            client,
            other,
            node,
        }
    }

    /// The daemon, without a pod network, once it has programmed everything.
    pub(crate) fn start(&self, flags: &[&str]) -> Daemon {
        std::fs::remove_file(self.node.path("log")).ok();
        let flags = [&["--pod-network", "off"], flags].concat();
        let daemon = self.node.start_with("iptables", &flags);
        daemon.wait_said(&["Programmed all Services"]);
        daemon
    }

    /// Who answers the client, if anybody.
    pub(crate) fn ask(&self, protocol: Protocol, address: &str) -> String {
        let answer = self.client.ask(protocol, address);
        answer.map_or_else(|error| format!("{:?}", error.kind()), |answer| answer.name)
    }

    /// Opens connections from the client all the time, while `act` runs: how many were
    /// answered, and why others were not.
    pub(crate) fn load(&self, address: &str, act: impl FnOnce()) -> (usize, Vec<String>) {
        let address = address.parse().unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        // A thread is where its parent is.
        let dialing = self.client.enter(|| {
            std::thread::spawn(move || {
                let (mut answered, mut failed) = (0, Vec::new());
                // The pause is short, and ends with the test.
                while stopped.recv_timeout(Duration::from_millis(3))
                    == Err(RecvTimeoutError::Timeout)
                {
                    match peer::ask(Protocol::Tcp, address, PATIENCE) {
                        Ok(_) => answered += 1,
                        Err(error) => failed.push(error.to_string()),
                    }
                }
                (answered, failed)
            })
        });
        act();
        drop(stop);
        dialing.join().unwrap()
    }
}
