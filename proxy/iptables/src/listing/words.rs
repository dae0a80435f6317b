//! What an expression of the kernel is in the words of `iptables-save`.
//!
//! Only what rules of ours are made of is known here, with every byte accounted for. A rule
//! with anything else in it has no words; what it says, iptables itself has to tell.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use seaway_proxy_core::desired::Family;

use super::attributes::{attributes, find, number, text};

mod extensions;

/// Gives the name of a set by its number in the kernel.
pub(super) type Sets<'a> = &'a mut dyn FnMut(u16) -> Option<String>;

/// A rule on its way into words.
struct Rule<'a> {
    family: Family,
    sets: Sets<'a>,
    /// What a comparison is about.
    loaded: Option<Loaded>,
    source: Option<String>,
    destination: Option<String>,
    interface: Option<String>,
    protocol: Option<&'static str>,
    /// `-m …`, in their order.
    matches: String,
    target: Option<String>,
}

/// A field of the packet.
struct Loaded {
    field: Field,
    /// The bits of it that are compared.
    mask: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum Field {
    /// Of the network header: where, and how many bytes.
    Address(u32, usize),
    DestinationPort,
    Interface,
    Mark,
    Protocol,
}

/// Include/uapi/linux/netfilter/nf_tables.h: the only register and what is asked for there,
const REGISTER: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const META_MARK: u32 = 3;
const META_INTERFACE: u32 = 6;
const META_PROTOCOL: u32 = 16;
/// comparisons,
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_MOST: u32 = 3;
const AT_LEAST: u32 = 5;
/// and verdicts, of which some are negative.
const DROP: i32 = 0;
const ACCEPT: i32 = 1;
const JUMP: i32 = -3;
const GOTO: i32 = -4;
const RETURN: i32 = -5;
/// `IFNAMSIZ`
const INTERFACE_NAME: usize = 16;

/// A rule as `iptables-save` prints it behind its chain's name, given its expressions.
pub(super) fn of(family: Family, expressions: &[u8], sets: Sets<'_>) -> Option<String> {
    let mut rule = Rule {
        family,
        sets,
        loaded: None,
        source: None,
        destination: None,
        interface: None,
        protocol: None,
        matches: String::new(),
        target: None,
    };
    for element in attributes(expressions) {
        let (_, element) = element?;
        let name = find(element, 1).and_then(text)?;
        rule.take(name, find(element, 2).unwrap_or_default())?;
    }
    rule.finish()
}

/// The chain that a rule leads to, whatever else it says.
pub(super) fn target(expressions: &[u8]) -> Option<&str> {
    let elements = attributes(expressions)
        .flatten()
        .map(|(_, element)| element);
    let verdict = elements.filter_map(|element| verdict(find(element, 2)?));
    verdict.filter_map(|(_, chain)| chain).last()
}

/// Code and chain of an immediate verdict: `NFTA_IMMEDIATE_DATA`, `NFTA_DATA_VERDICT`.
fn verdict(data: &[u8]) -> Option<(i32, Option<&str>)> {
    let verdict = find(find(data, 2)?, 2)?;
    let code = find(verdict, 1).and_then(number)?;
    Some((code.cast_signed(), find(verdict, 2).and_then(text)))
}

impl Rule<'_> {
    /// `None`: not one of ours.
    fn take(&mut self, name: &str, data: &[u8]) -> Option<()> {
        if self.target.is_some() {
            return None;
        }
        match name {
            "counter" => Some(()),
            "payload" => self.payload(data),
            "meta" => self.meta(data),
            "bitwise" => self.bitwise(data),
            "cmp" => self.compare(data),
            "range" => self.range(data),
            "match" => self.extension(data),
            "target" => {
                self.target = Some(extensions::target(self.family, data, self.sets)?);
                Some(())
            }
            "immediate" => self.verdict(data),
            _ => None,
        }
    }

    fn load(&mut self, field: Field) -> Option<()> {
        let loaded = Loaded { field, mask: None };
        self.loaded.replace(loaded).is_none().then_some(())
    }

    /// `NFTA_PAYLOAD_*`: register, header, offset, length.
    fn payload(&mut self, data: &[u8]) -> Option<()> {
        let [register, header, offset, length] = numbers(data, [1, 2, 3, 4])?;
        let field = match (header, offset, length) {
            (NETWORK_HEADER, _, 1..=16) => Field::Address(offset, length.try_into().ok()?),
            (TRANSPORT_HEADER, 2, 2) => Field::DestinationPort,
            _ => return None,
        };
        (register == REGISTER).then_some(())?;
        self.load(field)
    }

    /// `NFTA_META_*`: register, key.
    fn meta(&mut self, data: &[u8]) -> Option<()> {
        let field = match numbers(data, [1, 2])? {
            [REGISTER, META_MARK] => Field::Mark,
            [REGISTER, META_INTERFACE] => Field::Interface,
            [REGISTER, META_PROTOCOL] => Field::Protocol,
            _ => return None,
        };
        self.load(field)
    }

    /// `NFTA_BITWISE_*`: source, destination, length, mask, what is put in its place, and
    /// which operation that is.
    fn bitwise(&mut self, data: &[u8]) -> Option<()> {
        let [from, to, _] = numbers(data, [1, 2, 3])?;
        let mask = find(find(data, 4)?, 1)?;
        let put = find(find(data, 5)?, 1)?;
        let operation = find(data, 6).map_or(Some(0), number)?;
        let is_and = put.iter().all(|byte| *byte == 0) && operation == 0;
        (is_and && from == REGISTER && to == REGISTER).then_some(())?;
        let loaded = self.loaded.as_mut()?;
        let old = loaded.mask.replace(mask.to_vec());
        old.is_none().then_some(())
    }

    /// `NFTA_CMP_*`: register, how, with what.
    fn compare(&mut self, data: &[u8]) -> Option<()> {
        let [register, how] = numbers(data, [1, 2])?;
        let value = find(find(data, 3)?, 1)?;
        (register == REGISTER).then_some(())?;
        let Loaded { field, mask } = self.loaded.take()?;
        let not = if how == NOT_EQUAL { "! " } else { "" };
        match (field, how, mask) {
            (Field::Address(offset, length), EQUAL | NOT_EQUAL, mask) => {
                self.address(offset, length, mask.as_deref(), value, not)
            }
            (Field::Protocol, EQUAL, None) => {
                let name = protocol(*value.first()?).filter(|_| value.len() == 1)?;
                self.protocol.replace(name).is_none().then_some(())
            }
            (Field::DestinationPort, EQUAL, None) => {
                let port = port(value)?;
                self.destination_port(&port.to_string())
            }
            (Field::DestinationPort, AT_MOST, None) => {
                let last = port(value)?;
                self.destination_port(&format!("0:{last}"))
            }
            (Field::DestinationPort, AT_LEAST, None) => {
                let first = port(value)?;
                self.destination_port(&format!("{first}:65535"))
            }
            (Field::Interface, EQUAL, None) => {
                let words = format!("-i {} ", interface(value)?);
                self.interface.replace(words).is_none().then_some(())
            }
            (Field::Mark, EQUAL, Some(mask)) => {
                let (value, mask) = (host_order(value)?, host_order(&mask)?);
                self.push_match(&format!("-m mark --mark {value:#x}/{mask:#x}"))
            }
            _ => None,
        }
    }

    /// `NFTA_RANGE_*`: register, whether inside or outside, from, to.
    fn range(&mut self, data: &[u8]) -> Option<()> {
        let [register, how] = numbers(data, [1, 2])?;
        let from = port(find(find(data, 3)?, 1)?)?;
        let to = port(find(find(data, 4)?, 1)?)?;
        match self.loaded.take()? {
            Loaded {
                field: Field::DestinationPort,
                mask: None,
            } if register == REGISTER && how == EQUAL => {
                self.destination_port(&format!("{from}:{to}"))
            }
            _ => None,
        }
    }

    fn address(
        &mut self,
        offset: u32,
        length: usize,
        mask: Option<&[u8]>,
        value: &[u8],
        not: &str,
    ) -> Option<()> {
        (value.len() == length).then_some(())?;
        let bits = match mask {
            // A network that ends with a byte is compared by its bytes alone.
            None => length * 8,
            Some(mask) => prefix(mask).filter(|_| mask.len() == length)?,
        };
        let network = match self.family {
            Family::V4 => Ipv4Addr::from(padded::<4>(value)?).to_string(),
            Family::V6 => Ipv6Addr::from(padded::<16>(value)?).to_string(),
        };
        // Where the addresses are in `struct iphdr` and `struct ipv6hdr`.
        let (place, option) = match (self.family, offset) {
            (Family::V4, 12) | (Family::V6, 8) => (&mut self.source, "-s"),
            (Family::V4, 16) | (Family::V6, 24) => (&mut self.destination, "-d"),
            _ => return None,
        };
        let words = format!("{not}{option} {network}/{bits} ");
        place.replace(words).is_none().then_some(())
    }

    fn destination_port(&mut self, ports: &str) -> Option<()> {
        let protocol = self.protocol?;
        self.push_match(&format!("-m {protocol} --dport {ports}"))
    }

    fn extension(&mut self, data: &[u8]) -> Option<()> {
        let words = extensions::condition(self.protocol, data, self.sets)?;
        self.push_match(&words)
    }

    fn push_match(&mut self, words: &str) -> Option<()> {
        write!(self.matches, "{words} ").ok()
    }

    fn verdict(&mut self, data: &[u8]) -> Option<()> {
        let words = match verdict(data)? {
            (DROP, None) => "-j DROP".to_owned(),
            (ACCEPT, None) => "-j ACCEPT".to_owned(),
            (RETURN, None) => "-j RETURN".to_owned(),
            (JUMP, Some(chain)) => format!("-j {chain}"),
            (GOTO, Some(chain)) => format!("-g {chain}"),
            _ => return None,
        };
        self.target = Some(words);
        Some(())
    }

    fn finish(self) -> Option<String> {
        if self.loaded.is_some() {
            return None;
        }
        let mut words = String::new();
        for place in [self.source, self.destination, self.interface] {
            words += place.as_deref().unwrap_or_default();
        }
        if let Some(protocol) = self.protocol {
            write!(words, "-p {protocol} ").ok()?;
        }
        words += &self.matches;
        words += &self.target?;
        Some(words)
    }
}

fn numbers<const N: usize>(data: &[u8], kinds: [u16; N]) -> Option<[u32; N]> {
    let mut found = [0; N];
    for (place, kind) in found.iter_mut().zip(kinds) {
        *place = find(data, kind).and_then(number)?;
    }
    Some(found)
}

fn protocol(number: u8) -> Option<&'static str> {
    match number {
        6 => Some("tcp"),
        17 => Some("udp"),
        132 => Some("sctp"),
        _ => None,
    }
}

fn port(value: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(value.try_into().ok()?))
}

/// A mark is a number of this machine.
fn host_order(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// A name is compared with all that may follow it, the beginning of one without.
fn interface(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0);
    let name = std::str::from_utf8(value.get(..end.unwrap_or(value.len()))?).ok()?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let plus = match end {
        Some(end) if value.get(end..)?.iter().any(|byte| *byte != 0) => return None,
        // Iptables has no words for it.
        Some(_) if name.ends_with('+') => return None,
        Some(_) => "",
        None if value.len() < INTERFACE_NAME => "+",
        None => return None,
    };
    plain.then(|| format!("{name}{plus}"))
}

/// How many bits are set before the first that is not, if none is behind it.
fn prefix(mask: &[u8]) -> Option<usize> {
    let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let mut leading = 0;
    for byte in mask {
        leading += byte.leading_ones();
        if *byte != 0xff {
            break;
        }
    }
    (ones == leading).then_some(leading.try_into().ok()?)
}

/// The bytes with zeroes behind them.
fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(whole)
}

#[cfg(test)]
mod tests;
