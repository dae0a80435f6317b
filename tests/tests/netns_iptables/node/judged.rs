//! Packets that have to end as the interpreter says.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use seaway_proxy_core::desired::Protocol;
use seaway_proxy_core::interpret::{Outcome, Packet, Seen, interpret};
use seaway_testbed::Netns;
use seaway_testbed::peer::{self, Answer};

use super::{Node, OUTSIDE, POD_PORT};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Client,
    Host,
    Outside,
}

/// A new connection of theirs, as the node meets it.
pub(crate) fn packet(who: Who, protocol: peer::Protocol, to: &str) -> Packet {
    let (src, ifname) = match who {
        Who::Client => ("10.244.9.2", Some("pod9")),
        Who::Host => ("192.168.60.1", None),
        Who::Outside => (OUTSIDE, Some("uplink")),
    };
    Packet {
        src: src.parse().unwrap(),
        dst: to.parse().unwrap(),
        protocol: match protocol {
            peer::Protocol::Tcp => Protocol::Tcp,
            peer::Protocol::Udp | peer::Protocol::UdpUnconnected => Protocol::Udp,
        },
        ifname: ifname.map(str::to_owned),
    }
}

/// Where the pod of this name listens.
#[track_caller]
pub(crate) fn endpoint(name: &str) -> SocketAddr {
    let pod = name.strip_prefix("pod").and_then(|i| i.parse::<u8>().ok());
    let pod = pod.unwrap_or_else(|| panic!("{name} is no pod"));
    ([10, 244, pod, 2], POD_PORT).into()
}

impl Node {
    pub(crate) fn namespace(&self, who: Who) -> &Netns {
        match who {
            Who::Client => &self.client,
            Who::Host => &self.host,
            Who::Outside => &self.outside,
        }
    }

    /// As the kernel tells them now.
    pub(crate) fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let links = self.host.ip_json("addr show");
        let links = links.as_array().unwrap().iter();
        let infos = links.filter_map(|link| link["addr_info"].as_array());
        let addrs = infos.flatten().filter_map(|info| info["local"].as_str());
        addrs.map(|addr| addr.parse().unwrap()).collect()
    }

    /// Asks one of the Service's addresses, or one that is nobody's. What comes of it has to be
    /// what the interpreter makes of the last round.
    #[track_caller]
    pub(crate) fn ask(&self, who: Who, protocol: peer::Protocol, to: &str) -> io::Result<Answer> {
        let (own, packet) = (self.own_addresses(), packet(who, protocol, to));
        let outcome = interpret(&self.desired, &own, &packet);
        let asked = self.namespace(who).ask(protocol, to);
        let agree = match (&outcome, &asked) {
            (Outcome::Answered(by), Ok(answer)) => match by.get(&endpoint(&answer.name)) {
                Some(Seen::Client) => answer.client.ip() == packet.src,
                Some(Seen::Node) => own.contains(&answer.client.ip()),
                None => false,
            },
            (Outcome::Refused, Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
            (Outcome::Unanswered, Err(error)) => error.kind() == ErrorKind::TimedOut,
            // Whoever has the address answers, if anybody; none of the pods by a Service.
            (Outcome::Untouched, Ok(answer)) => !answer.name.starts_with("pod"),
            (Outcome::Untouched, Err(_)) => true,
            (Outcome::Answered(_), Err(_)) | (Outcome::Refused | Outcome::Unanswered, Ok(_)) => {
                false
            }
        };
        assert!(agree, "{to} from {who:?}: {outcome:?} said, {asked:?} seen");
        asked
    }
}
