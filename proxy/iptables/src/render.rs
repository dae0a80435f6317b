//! From the desired state to rules, in exactly the words of `iptables-save`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use seaway_proxy_core::desired::{
    DesiredState, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName,
};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::rendered::{
    HAIRPIN, HAIRPIN_PREFIX, MARK_OUTSIDE, MASQUERADE, NET_PREFIX, POSTROUTING, Rendered,
    SERVICE_PREFIX, SERVICES, Table,
};
use crate::tree::{self, Key};

/// Longest comment: `XT_MAX_COMMENT_LEN` (256, with the final zero) of the
/// kernel's `include/uapi/linux/netfilter/xt_comment.h`.
const COMMENT_MAX: usize = 255;

/// All of our rules.
pub(crate) fn render(config: &Config, desired: &DesiredState) -> Rendered {
    let mut rendered = Rendered::default();
    let mut translate = Vec::new();
    let mut refuse = Vec::new();
    let mut local = BTreeSet::new();
    for (name, service) in &desired.v4.services {
        let endpoints = v4_endpoints(service);
        for (addr, frontend) in v4_frontends(service) {
            let key = Key::frontend(addr, frontend);
            if endpoints.is_empty() {
                refuse.push((key, refuse_rule(addr, frontend, name)));
                continue;
            }
            let chain = service_chain(name, frontend.protocol);
            translate.push((key, translate_rule(addr, frontend, name, &chain)));
            if !rendered.nat.chains.contains_key(&chain) {
                push_service(
                    &mut rendered.nat,
                    config,
                    &chain,
                    name,
                    frontend,
                    &endpoints,
                );
            }
        }
        local.extend(
            endpoints
                .iter()
                .filter(|(_, local)| *local)
                .map(|(addr, _)| *addr.ip()),
        );
    }
    tree::build(&mut rendered.nat, SERVICES, NET_PREFIX, translate);
    tree::build(&mut rendered.filter, SERVICES, NET_PREFIX, refuse);
    push_postrouting(&mut rendered.nat, config, &local);
    push_jumps(&mut rendered);
    rendered
}

fn v4_frontends(service: &ServicePort) -> impl Iterator<Item = (Ipv4Addr, &Frontend)> {
    service
        .frontends
        .iter()
        .filter(|frontend| frontend.kind == FrontendKind::ClusterIp)
        .filter_map(|frontend| match frontend.addr {
            IpAddr::V4(addr) => Some((addr, frontend)),
            IpAddr::V6(_) => None,
        })
}

fn v4_endpoints(service: &ServicePort) -> Vec<(SocketAddrV4, bool)> {
    let v4 = service
        .cluster
        .iter()
        .filter_map(|endpoint| match endpoint.addr {
            SocketAddr::V4(addr) => Some((addr, endpoint.local)),
            SocketAddr::V6(_) => None,
        });
    v4.collect()
}

fn lower(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// Stable over restarts, and different for all Service ports: 64 bits of a hash.
fn service_chain(name: &ServicePortName, protocol: Protocol) -> String {
    let hash = Sha256::digest(format!("{name}/{}", lower(protocol)));
    hash.iter()
        .take(8)
        .fold(SERVICE_PREFIX.to_owned(), |mut chain, byte| {
            write!(chain, "{byte:02x}").expect("writing to a String cannot fail");
            chain
        })
}

/// A comment for people who read the rules. Names from an API server are plain;
/// any others must not be able to end the quotes or the line.
fn comment(text: &str) -> String {
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

fn frontend_match(addr: Ipv4Addr, frontend: &Frontend, note: &str) -> String {
    let protocol = lower(frontend.protocol);
    let (note, port) = (comment(note), frontend.port);
    format!("-d {addr}/32 -p {protocol} {note} -m {protocol} --dport {port}")
}

fn translate_rule(
    addr: Ipv4Addr,
    frontend: &Frontend,
    name: &ServicePortName,
    chain: &str,
) -> String {
    format!(
        "{} -g {chain}",
        frontend_match(addr, frontend, &name.to_string())
    )
}

fn refuse_rule(addr: Ipv4Addr, frontend: &Frontend, name: &ServicePortName) -> String {
    let condition = frontend_match(addr, frontend, &format!("{name} has no endpoints"));
    format!("{condition} -j REJECT --reject-with icmp-port-unreachable")
}

/// The chain of a Service port: every endpoint with the same probability.
fn push_service(
    nat: &mut Table,
    config: &Config,
    chain: &str,
    name: &ServicePortName,
    frontend: &Frontend,
    endpoints: &[(SocketAddrV4, bool)],
) {
    if !config.cluster_cidrs.is_empty() {
        nat.push(chain, format_args!("-j {MARK_OUTSIDE}"));
    }
    let protocol = lower(frontend.protocol);
    for (index, (endpoint, _)) in endpoints.iter().enumerate() {
        let condition = match endpoints.len() - index {
            // The chain is entered by goto: whoever lists it alone still sees whose it is.
            1 => comment(&name.to_string()),
            left => format!("-m statistic --mode random --probability {}", one_in(left)),
        };
        let to = format_args!("-p {protocol} {condition} -j DNAT --to-destination {endpoint}");
        nat.push(chain, to);
    }
}

/// 1/n as the kernel stores it: a fraction of 2^31, shown with 11 decimals.
fn one_in(n: usize) -> String {
    const ONE: u32 = 1 << 31;
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    // Rounded like lround() in libxt_statistic.
    let share = (ONE + n / 2) / n;
    format!("{:.11}", f64::from(share) / f64::from(ONE))
}

/// What has been translated and must come back the same way.
fn push_postrouting(nat: &mut Table, config: &Config, local: &BTreeSet<Ipv4Addr>) {
    let mark = config.masquerade_mark;
    if !config.cluster_cidrs.is_empty() {
        let on_mark = format_args!("-m mark --mark {mark:#x}/{mark:#x} -j {MASQUERADE}");
        nat.push(POSTROUTING, on_mark);
        // The mark is taken off, lest an encapsulated packet be masqueraded again.
        nat.push(
            MASQUERADE,
            format_args!("-j MARK --set-xmark {mark:#x}/0x0"),
        );
        nat.push(MASQUERADE, format_args!("-j MASQUERADE --random-fully"));
        for cidr in &config.cluster_cidrs {
            let cidr = format_args!("{}/{}", cidr.network(), cidr.prefix());
            nat.push(MARK_OUTSIDE, format_args!("-s {cidr} -j RETURN"));
        }
        nat.push(
            MARK_OUTSIDE,
            format_args!("-j MARK --set-xmark {mark:#x}/{mark:#x}"),
        );
    }
    // An endpoint that was chosen to answer itself would see its own address as
    // the source and drop the packet.
    nat.push(
        POSTROUTING,
        format_args!("-m conntrack --ctstate DNAT -j {HAIRPIN}"),
    );
    let hairpin = |addr: &Ipv4Addr| {
        let rule = format!("-s {addr}/32 -d {addr}/32 -j MASQUERADE --random-fully");
        (Key::addr(*addr), rule)
    };
    tree::build(
        nat,
        HAIRPIN,
        HAIRPIN_PREFIX,
        local.iter().map(hairpin).collect(),
    );
}

fn push_jumps(rendered: &mut Rendered) {
    let note = comment("seaway services");
    let jump = |from: &str, condition: &str, to: &str| {
        (from.to_owned(), format!("{condition}{note} -j {to}"))
    };
    // Only new connections: an endpoint that has gone does not cut old ones.
    let new = "-m conntrack --ctstate NEW ";
    rendered.filter.jumps = vec![
        jump("FORWARD", new, SERVICES),
        jump("OUTPUT", new, SERVICES),
    ];
    rendered.nat.jumps = vec![
        jump("OUTPUT", "", SERVICES),
        jump("POSTROUTING", "", POSTROUTING),
        jump("PREROUTING", "", SERVICES),
    ];
}
