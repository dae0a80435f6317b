//! Ports of the host that lead to pods.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

use crate::ruleset::{Action, Chain, Field, Hook, Match, Rule, Ruleset, Set, sign};
use crate::set::Element;

/// Chains of this feature; one that is jumped to comes before those that jump.
pub(crate) const CHAINS: [&str; 5] = [TRANSLATE, INCOMING, OUTGOING, RETURNING, GUARD];
const TRANSLATE: &str = "hostports";
const INCOMING: &str = "hostports-in";
const OUTGOING: &str = "hostports-out";
const RETURNING: &str = "hostports-masquerade";
const GUARD: &str = "hostports-guard";

/// (address, protocol, port) of the host to (address, port) of a pod.
pub(crate) const AT_ADDRESS: &str = "hostports-at";
/// The same for every address of the host.
pub(crate) const EVERYWHERE: &str = "hostports-any";
/// (pod, pod): pods that may reach themselves.
pub(crate) const HAIRPINS: &str = "hostports-pods";
pub(crate) const SETS: [&str; 3] = [AT_ADDRESS, EVERYWHERE, HAIRPINS];

/// The hosts' ends of the pods' interfaces.
const POD_LINKS: &str = "sw";

/// A transport protocol that has ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the host that leads to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Of both ports.
    pub protocol: Protocol,
    /// Only this address of the host; absent for all, of the pod's family.
    pub host_ip: Option<IpAddr>,
    /// On the host.
    pub host_port: u16,
    /// The pod's address.
    pub pod: IpAddr,
    /// In the pod.
    pub pod_port: u16,
}

impl Protocol {
    /// `IPPROTO_*`.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_ip {
            Some(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}/{}", self.host_port, self.protocol),
            Some(ip) => write!(f, "{ip}:{}/{}", self.host_port, self.protocol),
            None => write!(f, "{}/{}", self.host_port, self.protocol),
        }
    }
}

impl HostPort {
    pub(crate) fn family(&self) -> Family {
        Family::of(self.pod)
    }

    /// What is put into the maps: the way in, and leave to come back to
    /// oneself.
    pub(crate) fn element(&self) -> Element {
        let mut key = self.host_ip.map(octets).unwrap_or_default();
        key.extend([self.protocol.number(), 0, 0, 0]);
        key.extend(port(self.host_port));
        let mut data = octets(self.pod);
        data.extend(port(self.pod_port));
        let set = if self.host_ip.is_some() {
            AT_ADDRESS
        } else {
            EVERYWHERE
        };
        Element {
            set,
            key,
            data,
            text: self.to_string(),
        }
    }
}

pub(crate) fn hairpin(pod: IpAddr) -> Element {
    let mut key = octets(pod);
    key.extend(octets(pod));
    Element {
        set: HAIRPINS,
        key,
        data: Vec::new(),
        text: pod.to_string(),
    }
}

/// Whether an element that was read back belongs to the pod.
pub(crate) fn belongs_to(set: &str, key: &[u8], data: &[u8], pod: IpAddr) -> bool {
    let value = if set == HAIRPINS { key } else { data };
    value.starts_with(&octets(pod))
}

pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// A field of two bytes takes up four.
fn port(port: u16) -> [u8; 4] {
    let [high, low] = port.to_be_bytes();
    [high, low, 0, 0]
}

/// The rules, which are the same whatever ports there are.
pub(crate) fn ruleset(family: Family) -> Ruleset {
    let rule = Rule::new;
    let map = |map, with_address| Action::Dnat { map, with_address };
    let to_host = || rule(vec![Match::LocalDestination], Action::Jump(TRANSLATE));
    let mut translate = vec![
        rule(Vec::new(), map(AT_ADDRESS, true)),
        rule(Vec::new(), map(EVERYWHERE, false)),
    ];
    let mut returning = vec![rule(vec![Match::AddressesIn(HAIRPINS)], Action::Masquerade)];
    let mut guard = Vec::new();
    match family {
        Family::V4 => {
            // From the host's loopback to a pod: the pod must answer to an
            // address that is not its own loopback.
            let leaves = vec![
                Match::Source(loopback(family)),
                Match::OutputPrefix(POD_LINKS),
            ];
            returning.push(rule(leaves, Action::Masquerade));
            // For that, `route_localnet` is on at the pod's link. The pod must
            // not reach the host's loopback through it (CVE-2020-8558).
            let enters = vec![
                Match::InputPrefix(POD_LINKS),
                Match::Destination(loopback(family)),
            ];
            guard.push(rule(enters, Action::Drop));
        }
        // IPv6 has no such setting: what is sent to ::1 stays on the host.
        Family::V6 => translate.insert(
            0,
            rule(vec![Match::Destination(loopback(family))], Action::Return),
        ),
    }
    let chain = |name, hook, rules| Chain { name, hook, rules };
    let mut chains = vec![
        chain(TRANSLATE, None, translate),
        chain(INCOMING, Some(Hook::DestinationNat), vec![to_host()]),
        chain(OUTGOING, Some(Hook::OutputNat), vec![to_host()]),
        chain(RETURNING, Some(Hook::SourceNat), returning),
        chain(GUARD, Some(Hook::Raw), guard),
    ];
    chains.retain(|chain| !chain.rules.is_empty());
    sign("hostports", &mut chains);
    Ruleset {
        family,
        sets: sets(),
        chains,
    }
}

fn sets() -> Vec<Set> {
    use Field::{Address, Port, Protocol};
    let set = |name, key, data| Set { name, key, data };
    vec![
        set(AT_ADDRESS, &[Address, Protocol, Port], &[Address, Port]),
        set(EVERYWHERE, &[Protocol, Port], &[Address, Port]),
        set(HAIRPINS, &[Address, Address], &[]),
    ]
}

fn loopback(family: Family) -> IpNetwork {
    let (address, prefix) = match family {
        Family::V4 => (IpAddr::from([127, 0, 0, 0]), 8),
        Family::V6 => (IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]), 128),
    };
    IpNetwork::new(address, prefix).expect("a constant")
}

#[cfg(test)]
mod tests;
