//! What a rule says, in the kernel's expressions.
//!
//! Numbers are from include/uapi/linux/netfilter/nf_tables.h and nf_nat.h.

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

use crate::attributes::Attributes;
use crate::ruleset::{Action, Match, Rule};

pub(crate) const LIST_ELEMENT: u16 = 1;
pub(crate) const EXPRESSION_NAME: u16 = 1;
pub(crate) const EXPRESSION_DATA: u16 = 2;
pub(crate) const IMMEDIATE_DATA: u16 = 2;
pub(crate) const DATA_VALUE: u16 = 1;
pub(crate) const DATA_VERDICT: u16 = 2;
pub(crate) const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
/// `NFT_JUMP` and `NFT_RETURN`, which are negative numbers.
pub(crate) const JUMP: u32 = (-3i32).cast_unsigned();
pub(crate) const RETURN: u32 = (-5i32).cast_unsigned();
const REGISTER_VERDICT: u32 = 0;
const REGISTER_1: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `NFT_REG32_00`: the same 64 bytes as [`REGISTER_1`], in words of 4 bytes.
const WORD_0: u32 = 8;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_L4PROTO: u32 = 16;
/// `NFT_FIB_RESULT_ADDRTYPE` of the destination (`NFTA_FIB_F_DADDR`).
const FIB_ADDRTYPE: u32 = 3;
const FIB_DADDR: u32 = 1 << 1;
/// `RTN_LOCAL`, include/uapi/linux/rtnetlink.h.
const LOCAL: u32 = 2;
const NAT_DESTINATION: u32 = 1;
/// `NF_DROP` and `NF_ACCEPT`.
pub(crate) const DROP: u32 = 0;
pub(crate) const ACCEPT: u32 = 1;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
const RANDOM_FULLY: u32 = 1 << 4;

/// All expressions of a rule, its matches first.
pub(crate) fn expressions(family: Family, rule: &Rule) -> Attributes {
    let mut list = Attributes::default();
    for matches in &rule.matches {
        list = one_match(list, family, matches);
    }
    match &rule.action {
        Action::Return => verdict(list, RETURN, None),
        Action::Jump(target) => verdict(list, JUMP, Some(target)),
        Action::Drop => verdict(list, DROP, None),
        Action::Accept => verdict(list, ACCEPT, None),
        Action::Masquerade => {
            let masquerade = Attributes::default().number(1, RANDOM_FULLY);
            expression(list, "masq", &masquerade)
        }
        Action::Dnat { map, with_address } => dnat(list, family, map, *with_address),
    }
}

fn one_match(list: Attributes, family: Family, matches: &Match) -> Attributes {
    let v4 = family == Family::V4;
    // Offsets of the addresses in the IPv4 and IPv6 headers.
    let (source, destination) = if v4 { (12, 16) } else { (8, 24) };
    match matches {
        Match::Source(network) => match_network(list, *network, source),
        Match::Destination(network) => match_network(list, *network, destination),
        Match::LocalDestination => {
            let fib = Attributes::default()
                .number(1, REGISTER_1)
                .number(2, FIB_ADDRTYPE)
                .number(3, FIB_DADDR);
            let list = expression(list, "fib", &fib);
            equal(list, REGISTER_1, &LOCAL.to_ne_bytes())
        }
        Match::InputPrefix(prefix) => {
            let list = meta(list, META_IIFNAME, REGISTER_1);
            equal(list, REGISTER_1, prefix.as_bytes())
        }
        Match::OutputPrefix(prefix) => {
            let list = meta(list, META_OIFNAME, REGISTER_1);
            equal(list, REGISTER_1, prefix.as_bytes())
        }
        Match::AddressesIn(set) => {
            let length = if v4 { 8 } else { 32 };
            let list = load(list, NETWORK_HEADER, source, length, WORD_0);
            lookup(list, set, None)
        }
    }
}

/// `[ip daddr .] meta l4proto . th dport => address . port`, and to there.
fn dnat(list: Attributes, family: Family, map: &str, with_address: bool) -> Attributes {
    let (offset, length, words) = match family {
        Family::V4 => (16, 4, 1),
        Family::V6 => (24, 16, 4),
    };
    let (list, next) = if with_address {
        let list = load(list, NETWORK_HEADER, offset, length, WORD_0);
        (list, WORD_0 + words)
    } else {
        (list, WORD_0)
    };
    let list = meta(list, META_L4PROTO, next);
    // Both ports are at the same place in TCP, UDP and SCTP.
    let list = load(list, TRANSPORT_HEADER, 2, 2, next + 1);
    let list = lookup(list, map, Some(WORD_0));
    let nat = Attributes::default()
        .number(1, NAT_DESTINATION)
        .number(2, u32::from(crate::message::number(family)))
        .number(3, WORD_0)
        .number(5, WORD_0 + words);
    expression(list, "nat", &nat)
}

/// The key from word 0 on; what the map says goes to `target`.
fn lookup(list: Attributes, set: &str, target: Option<u32>) -> Attributes {
    let mut lookup = Attributes::default().text(1, set).number(2, WORD_0);
    if let Some(register) = target {
        lookup = lookup.number(3, register);
    }
    expression(list, "lookup", &lookup)
}

/// `payload load; bitwise and mask; cmp eq network`.
fn match_network(list: Attributes, network: IpNetwork, offset: u32) -> Attributes {
    let (address, mask) = octets(network);
    let length = if network.is_ipv4() { 4 } else { 16 };
    if network.prefix() == 0 {
        return list;
    }
    let mut list = load(list, NETWORK_HEADER, offset, length, REGISTER_1);
    if u32::from(network.prefix()) < length * 8 {
        let zero = vec![0; mask.len()];
        let and = Attributes::default()
            .number(1, REGISTER_1)
            .number(2, REGISTER_1)
            .number(3, length)
            .nested(4, &Attributes::default().bytes(DATA_VALUE, &mask))
            .nested(5, &Attributes::default().bytes(DATA_VALUE, &zero));
        list = expression(list, "bitwise", &and);
    }
    equal(list, REGISTER_1, &address)
}

/// `payload load LENGTH b @ HEADER + OFFSET => REGISTER`.
fn load(list: Attributes, header: u32, offset: u32, length: u32, register: u32) -> Attributes {
    let load = Attributes::default()
        .number(1, register)
        .number(2, header)
        .number(3, offset)
        .number(4, length);
    expression(list, "payload", &load)
}

/// `meta load KEY => REGISTER`.
fn meta(list: Attributes, key: u32, register: u32) -> Attributes {
    let meta = Attributes::default().number(1, register).number(2, key);
    expression(list, "meta", &meta)
}

/// `cmp eq REGISTER VALUE`; a value shorter than the register is a prefix.
fn equal(list: Attributes, register: u32, value: &[u8]) -> Attributes {
    let equal = Attributes::default()
        .number(1, register)
        .number(2, 0)
        .nested(3, &Attributes::default().bytes(DATA_VALUE, value));
    expression(list, "cmp", &equal)
}

fn verdict(list: Attributes, code: u32, target: Option<&str>) -> Attributes {
    let mut verdict = Attributes::default().number(VERDICT_CODE, code);
    if let Some(target) = target {
        verdict = verdict.text(VERDICT_CHAIN, target);
    }
    let data = Attributes::default().nested(DATA_VERDICT, &verdict);
    let immediate = Attributes::default()
        .number(1, REGISTER_VERDICT)
        .nested(IMMEDIATE_DATA, &data);
    expression(list, "immediate", &immediate)
}

fn expression(list: Attributes, name: &str, data: &Attributes) -> Attributes {
    let expression = Attributes::default()
        .text(EXPRESSION_NAME, name)
        .nested(EXPRESSION_DATA, data);
    list.nested(LIST_ELEMENT, &expression)
}

fn octets(network: IpNetwork) -> (Vec<u8>, Vec<u8>) {
    match network {
        IpNetwork::V4(n) => (n.network().octets().to_vec(), n.mask().octets().to_vec()),
        IpNetwork::V6(n) => (n.network().octets().to_vec(), n.mask().octets().to_vec()),
    }
}
