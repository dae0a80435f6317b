//! What our table shall hold, as values. `Display` is nft's own notation.

use std::fmt::{self, Write as _};

use ipnetwork::IpNetwork;
use seaway_netlink::Family;
use sha2::{Digest as _, Sha256};

use crate::TABLE;

/// The chains of one feature in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) family: Family,
    /// Their elements are not part of a rule set, and survive its renewal.
    pub(crate) sets: Vec<Set>,
    /// A chain comes before the chains that jump to it.
    pub(crate) chains: Vec<Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    pub(crate) hook: Option<Hook>,
    pub(crate) rules: Vec<Rule>,
}

/// Where a base chain is called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// `type nat hook postrouting priority srcnat`.
    SourceNat,
    /// Packets that come in, behind the service proxies' own destination NAT.
    DestinationNat,
    /// The same for packets of this host's own.
    OutputNat,
    /// Packets that come in, before anybody has changed them.
    Raw,
}

/// The kernel's words for a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    /// `NF_INET_*`.
    pub(crate) number: u32,
    pub(crate) priority: i32,
}

impl Hook {
    /// Priorities: `NF_IP_PRI_*`, include/uapi/linux/netfilter_ipv4.h. Services
    /// are translated at -100, and the first translation counts.
    pub(crate) fn place(self) -> Place {
        let (kind, name, number, priority) = match self {
            Self::SourceNat => ("nat", "postrouting", 4, 100),
            Self::DestinationNat => ("nat", "prerouting", 0, -95),
            Self::OutputNat => ("nat", "output", 3, -95),
            Self::Raw => ("filter", "prerouting", 0, -300),
        };
        Place {
            kind,
            name,
            number,
            priority,
        }
    }
}

/// A set, or a map when it has data. Keys and data are fields of four bytes,
/// or of sixteen for an IPv6 address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) key: &'static [Field],
    pub(crate) data: &'static [Field],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Address,
    Protocol,
    Port,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) matches: Vec<Match>,
    pub(crate) action: Action,
    /// Tells our own read-back what this rule is.
    pub(crate) comment: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Source(IpNetwork),
    Destination(IpNetwork),
    /// To an address of this host.
    LocalDestination,
    /// In by an interface whose name begins so.
    InputPrefix(&'static str),
    /// Out by an interface whose name begins so.
    OutputPrefix(&'static str),
    /// Source and destination together are in the set.
    AddressesIn(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Return,
    Drop,
    Accept,
    Jump(&'static str),
    /// To where the map says for (destination,) protocol and port.
    Dnat {
        map: &'static str,
        with_address: bool,
    },
    /// With source ports chosen at random: the kernel's sequential choice
    /// loses DNS queries in races (kubernetes#56903).
    Masquerade,
}

impl Rule {
    /// A rule that is not signed yet.
    pub(crate) fn new(matches: Vec<Match>, action: Action) -> Self {
        Self {
            matches,
            action,
            comment: String::new(),
        }
    }
}

/// Marks every rule with a hash over all and its place, so that a missing, an
/// extra and a moved rule all differ.
pub(crate) fn sign(feature: &str, chains: &mut [Chain]) {
    let mut hash = Sha256::new();
    for chain in chains.iter() {
        hash.update(format!("{chain:?}"));
    }
    let mut generation = String::new();
    for byte in &hash.finalize()[..8] {
        write!(generation, "{byte:02x}").expect("writing to a string does not fail");
    }
    for chain in chains {
        let count = chain.rules.len();
        for (place, rule) in chain.rules.iter_mut().enumerate() {
            rule.comment = format!("{feature} {generation} {}/{count}", place + 1);
        }
    }
}

impl Ruleset {
    /// (chain, comment) of every rule, which is what the kernel is asked for.
    pub(crate) fn marks(&self) -> Vec<(String, String)> {
        let marks = self.chains.iter().flat_map(|chain| {
            chain
                .rules
                .iter()
                .map(|rule| (chain.name.to_owned(), rule.comment.clone()))
        });
        marks.collect()
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = keyword(self.family);
        writeln!(f, "table {ip} {TABLE} {{")?;
        for chain in &self.chains {
            writeln!(f, "\tchain {} {{", chain.name)?;
            if let Some(at) = chain.hook.map(Hook::place) {
                let (kind, name) = (at.kind, at.name);
                let priority = at.priority;
                writeln!(
                    f,
                    "\t\ttype {kind} hook {name} priority {priority}; policy accept;"
                )?;
            }
            for rule in &chain.rules {
                write!(f, "\t\t")?;
                for matches in &rule.matches {
                    matches.write(f, ip)?;
                }
                rule.action.write(f, ip)?;
                writeln!(f, " comment \"{}\"", rule.comment)?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
    }
}

impl Match {
    fn write(&self, f: &mut fmt::Formatter<'_>, ip: &str) -> fmt::Result {
        match self {
            Self::Source(network) => write!(f, "{ip} saddr {} ", bare(*network)),
            Self::Destination(network) => write!(f, "{ip} daddr {} ", bare(*network)),
            Self::LocalDestination => write!(f, "fib daddr type local "),
            Self::InputPrefix(prefix) => write!(f, "iifname \"{prefix}*\" "),
            Self::OutputPrefix(prefix) => write!(f, "oifname \"{prefix}*\" "),
            Self::AddressesIn(set) => write!(f, "{ip} saddr . {ip} daddr @{set} "),
        }
    }
}

impl Action {
    fn write(&self, f: &mut fmt::Formatter<'_>, ip: &str) -> fmt::Result {
        match self {
            Self::Return => write!(f, "return"),
            Self::Drop => write!(f, "drop"),
            Self::Accept => write!(f, "accept"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Masquerade => write!(f, "masquerade fully-random"),
            Self::Dnat { map, with_address } => {
                let address = if *with_address {
                    format!("{ip} daddr . ")
                } else {
                    String::new()
                };
                write!(
                    f,
                    "dnat {ip} to {address}meta l4proto . th dport map @{map}"
                )
            }
        }
    }
}

/// nft's name of a family.
pub(crate) fn keyword(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// nft leaves out the prefix length of a single address.
fn bare(network: IpNetwork) -> String {
    let single = if network.is_ipv4() { 32 } else { 128 };
    if network.prefix() == single {
        network.ip().to_string()
    } else {
        network.to_string()
    }
}
