//! Matches and targets of x_tables inside nftables' rules, by their structures in
//! include/uapi/linux/netfilter/. Their numbers are this machine's.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use seaway_proxy_core::desired::Family;

use super::super::attributes::{find, number, text};
use super::Sets;

/// `RTN_LOCAL` as `XT_ADDRTYPE_LOCAL`.
const LOCAL: u16 = 1 << 2;
/// `XT_SCTP_DEST_PORTS`
const SCTP_DESTINATION: u32 = 2;
/// `IPSET_DIM_ONE_SRC`, `IPSET_INVALID_ID` and `IPSET_FLAG_EXIST`
const SET_SOURCE: u8 = 1 << 1;
const NO_SET: u16 = u16::MAX;
const SET_EXIST: u32 = 1;
/// `XT_CONNTRACK_STATE`
const BY_STATE: u16 = 1;
/// `NF_NAT_RANGE_MAP_IPS` and `_PROTO_SPECIFIED`
const TO_ADDRESS_AND_PORT: u32 = 3;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`
const RANDOM_FULLY: u32 = 1 << 4;
/// States of `xt_conntrack` in the order in which they are shown, each by its bit.
const STATES: [(u16, &str); 7] = [
    (1, "INVALID"),
    (1 << 3, "NEW"),
    (1 << 2, "RELATED"),
    (1 << 1, "ESTABLISHED"),
    (1 << 8, "UNTRACKED"),
    (1 << 6, "SNAT"),
    (1 << 7, "DNAT"),
];

/// `NFTA_MATCH_*` and `NFTA_TARGET_*`: name, revision, structure.
fn extension(data: &[u8]) -> Option<(&str, u32, &[u8])> {
    let name = find(data, 1).and_then(text)?;
    Some((name, find(data, 2).and_then(number)?, find(data, 3)?))
}

/// A match, in a rule for packets of this protocol.
pub(super) fn condition(protocol: Option<&str>, data: &[u8], sets: Sets<'_>) -> Option<String> {
    let (name, revision, info) = extension(data)?;
    match (name, revision) {
        ("comment", 0) => comment(info),
        ("statistic", 0) => statistic(info),
        ("addrtype", 1) => addrtype(info),
        ("conntrack", 3) => conntrack(info),
        ("mark", 1) => mark(info),
        ("set", 4) => in_set(info, sets),
        ("sctp", 0) if protocol == Some(name) => sctp(info),
        ("tcp" | "udp", 0) if protocol == Some(name) => ports(name, info),
        _ => None,
    }
}

/// A target.
pub(super) fn target(family: Family, data: &[u8], sets: Sets<'_>) -> Option<String> {
    let (name, revision, info) = extension(data)?;
    match (name, revision) {
        ("DNAT", 2) => dnat(family, info),
        ("MARK", 2) => {
            let [mark, mask] = [u32_at(info, 0)?, u32_at(info, 4)?];
            Some(format!("-j MARK --set-xmark {mark:#x}/{mask:#x}"))
        }
        ("SET", 3) => add_to_set(info, sets),
        ("MASQUERADE", 0) => masquerade(family, info),
        ("REJECT", 0) => match (family, u32_at(info, 0)?) {
            // `IPT_ICMP_PORT_UNREACHABLE` and `IP6T_ICMP6_PORT_UNREACH`
            (Family::V4, 3) => Some("-j REJECT --reject-with icmp-port-unreachable".to_owned()),
            (Family::V6, 4) => Some("-j REJECT --reject-with icmp6-port-unreachable".to_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// `struct xt_comment_info`
fn comment(info: &[u8]) -> Option<String> {
    let end = info.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(info.get(..end)?).ok()?;
    let plain = |c: char| (c.is_ascii_graphic() && c != '"' && c != '\\' && c != '\'') || c == ' ';
    text.chars().all(plain).then_some(())?;
    // As libxtables quotes: only what needs it.
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(bare) {
        return Some(format!("-m comment --comment {text}"));
    }
    Some(format!("-m comment --comment \"{text}\""))
}

/// `struct xt_statistic_info`: mode, flags, probability; what follows is of other modes.
fn statistic(info: &[u8]) -> Option<String> {
    (u32_at(info, 0)? == 0).then_some(())?;
    let probability = f64::from(u32_at(info, 4)?) / f64::from(1u32 << 31);
    Some(format!(
        "-m statistic --mode random --probability {probability:.11}"
    ))
}

/// `struct xt_addrtype_info_v1`: source, destination, flags.
fn addrtype(info: &[u8]) -> Option<String> {
    match (u16_at(info, 0)?, u16_at(info, 2)?, u32_at(info, 4)?) {
        (LOCAL, 0, 0) => Some("-m addrtype --src-type LOCAL".to_owned()),
        (0, LOCAL, 0) => Some("-m addrtype --dst-type LOCAL".to_owned()),
        _ => None,
    }
}

/// `struct xt_conntrack_mtinfo3`, of which only the state is asked for.
fn conntrack(info: &[u8]) -> Option<String> {
    let (flags, inverted, states) = (u16_at(info, 146)?, u16_at(info, 148)?, u16_at(info, 150)?);
    let not = match inverted {
        0 => "",
        BY_STATE => "! ",
        _ => return None,
    };
    let known: u16 = STATES.iter().map(|(bit, _)| bit).sum();
    (flags == BY_STATE && states != 0 && states & !known == 0).then_some(())?;
    let shown = STATES.iter().filter(|(bit, _)| states & bit != 0);
    let shown: Vec<&str> = shown.map(|(_, name)| *name).collect();
    Some(format!("-m conntrack {not}--ctstate {}", shown.join(",")))
}

/// `struct xt_mark_mtinfo1`: mark, mask, inverted.
fn mark(info: &[u8]) -> Option<String> {
    let (mark, mask) = (u32_at(info, 0)?, u32_at(info, 4)?);
    (*info.get(8)? == 0).then(|| format!("-m mark --mark {mark:#x}/{mask:#x}"))
}

/// `struct xt_tcp` and `struct xt_udp`: source and destination ports, and
/// what else may be asked for.
fn ports(protocol: &str, info: &[u8]) -> Option<String> {
    let any = u16_at(info, 0)? == 0 && u16_at(info, 2)? == u16::MAX;
    let nothing_else = info.get(8..)?.iter().all(|byte| *byte == 0);
    (any && nothing_else).then_some(())?;
    let ports = range(u16_at(info, 4)?, u16_at(info, 6)?);
    Some(format!("-m {protocol} --dport {ports}"))
}

fn range(from: u16, to: u16) -> String {
    if from == to {
        from.to_string()
    } else {
        format!("{from}:{to}")
    }
}

/// `struct xt_sctp_info`: destination and source ports, chunks, and behind them which of
/// these are asked for, and which inverted.
fn sctp(info: &[u8]) -> Option<String> {
    let (from, to) = (u16_at(info, 0)?, u16_at(info, 2)?);
    (u32_at(info, 284)? == SCTP_DESTINATION && u32_at(info, 288)? == 0).then_some(())?;
    Some(format!("-m sctp --dport {}", range(from, to)))
}

/// `struct xt_set_info`: number, dimensions and flags of a set, for one source address.
fn by_source(info: &[u8], sets: Sets<'_>) -> Option<String> {
    (info.get(2..4)? == [1, SET_SOURCE]).then(|| sets(u16_at(info, 0)?))?
}

/// `struct xt_set_info_match_v4`, without counters to compare.
fn in_set(info: &[u8], sets: Sets<'_>) -> Option<String> {
    let nothing_else = info.get(4..)?.iter().all(|byte| *byte == 0);
    let name = by_source(info, sets).filter(|_| nothing_else)?;
    Some(format!("-m set --match-set {name} src"))
}

/// `struct xt_set_info_target_v3`: the sets to add to, to remove from and to map by, flags
/// and the timeout.
fn add_to_set(info: &[u8], sets: Sets<'_>) -> Option<String> {
    let only = [4, 8].map(|place| u16_at(info, place)) == [Some(NO_SET); 2];
    let exist = u32_at(info, 12)? == SET_EXIST && u32_at(info, 16)? == u32::MAX;
    let name = by_source(info, sets).filter(|_| only && exist)?;
    Some(format!("-j SET --add-set {name} src --exist"))
}

/// `struct nf_nat_range2`: flags, first and last address, first, last and base port.
fn dnat(family: Family, info: &[u8]) -> Option<String> {
    let (first, last) = (info.get(4..20)?, info.get(20..36)?);
    let [from, to, base] = [36, 38, 40].map(|place| info.get(place..place + 2));
    let one = first == last && from == to && base == Some(&[0, 0]);
    (one && u32_at(info, 0)? == TO_ADDRESS_AND_PORT).then_some(())?;
    let port = u16::from_be_bytes(from?.try_into().ok()?);
    let addr: [u8; 16] = first.try_into().ok()?;
    let addr = match family {
        Family::V4 => Ipv4Addr::from(*addr.first_chunk()?).into(),
        Family::V6 => Ipv6Addr::from(addr).into(),
    };
    let addr = SocketAddr::new(addr, port);
    Some(format!("-j DNAT --to-destination {addr}"))
}

/// `struct nf_nat_ipv4_multi_range_compat`, and for IPv6 `struct nf_nat_range`.
fn masquerade(family: Family, info: &[u8]) -> Option<String> {
    let rest = match family {
        Family::V4 if u32_at(info, 0)? == 1 => info.get(4..)?,
        Family::V4 => return None,
        Family::V6 => info,
    };
    let nothing_else = rest.get(4..)?.iter().all(|byte| *byte == 0);
    let random = u32_at(rest, 0)? == RANDOM_FULLY;
    (random && nothing_else).then(|| "-j MASQUERADE --random-fully".to_owned())
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    let bytes = bytes.get(place..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    let bytes = bytes.get(place..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}
