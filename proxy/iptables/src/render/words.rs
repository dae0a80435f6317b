//! Parts of rules, in exactly the words of `iptables-save`.

use std::fmt::Write as _;

use ipnetwork::IpNetwork;
use seaway_proxy_core::desired::{Family, Frontend, FrontendKind, Protocol, ServicePortName};
use sha2::{Digest, Sha256};

/// Longest comment: `XT_MAX_COMMENT_LEN` (256, with the final zero) of the
/// kernel's `include/uapi/linux/netfilter/xt_comment.h`.
const COMMENT_MAX: usize = 255;

pub(super) fn lower(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// Port unreachable, for every protocol.
pub(super) fn reject(family: Family) -> &'static str {
    match family {
        Family::V4 => "-j REJECT --reject-with icmp-port-unreachable",
        Family::V6 => "-j REJECT --reject-with icmp6-port-unreachable",
    }
}

/// The family's loopback addresses.
pub(super) fn loopback(family: Family) -> &'static str {
    match family {
        Family::V4 => "127.0.0.0/8",
        Family::V6 => "::1/128",
    }
}

/// A condition on the source; none if it is everybody.
pub(super) fn from_network(network: &IpNetwork) -> String {
    condition("-s", network)
}

/// A condition on the destination; none if it is everything.
pub(super) fn to_network(network: &IpNetwork) -> String {
    condition("-d", network)
}

fn condition(option: &str, network: &IpNetwork) -> String {
    // iptables-save leaves out what holds for every packet.
    if network.prefix() == 0 {
        return String::new();
    }
    format!("{option} {}/{} ", network.network(), network.prefix())
}

/// Stable over restarts, and different for all Service ports: 64 bits of a hash.
pub(super) fn hash(name: &ServicePortName, protocol: Protocol) -> String {
    let hash = Sha256::digest(format!("{name}/{}", lower(protocol)));
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

/// A comment for people who read the rules. Names from an API server are plain;
/// any others must not be able to end the quotes or the line.
pub(super) fn comment(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_graphic() && c != '"' && c != '\\' || c == ' ' {
            c
        } else {
            '?'
        }
    };
    let text: String = text.chars().map(plain).take(COMMENT_MAX).collect();
    format!("-m comment --comment \"{text}\"")
}

/// What leads to a frontend.
pub(super) fn frontend_match(frontend: &Frontend, note: &str) -> String {
    let addr = match frontend.kind {
        FrontendKind::NodePort => String::new(),
        _ => to_network(&frontend.addr.into()),
    };
    let protocol = lower(frontend.protocol);
    let (note, port) = (comment(note), frontend.port);
    format!("{addr}-p {protocol} {note} -m {protocol} --dport {port}")
}

/// 1/n as the kernel stores it: a fraction of 2^31, shown with 11 decimals.
pub(super) fn one_in(n: usize) -> String {
    const ONE: u32 = 1 << 31;
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    // Rounded like lround() in libxt_statistic.
    let share = (ONE + n / 2) / n;
    format!("{:.11}", f64::from(share) / f64::from(ONE))
}
