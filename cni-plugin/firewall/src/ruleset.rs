//! What our table shall hold, as values. `Display` is nft's own notation.

use std::fmt;

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

use crate::TABLE;

/// The chains of one feature in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) family: Family,
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
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) matches: Option<Match>,
    pub(crate) action: Action,
    /// Tells our own read-back what this rule is.
    pub(crate) comment: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Source(IpNetwork),
    Destination(IpNetwork),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Return,
    Jump(&'static str),
    /// With source ports chosen at random: the kernel's sequential choice
    /// loses DNS queries in races (kubernetes#56903).
    Masquerade,
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
            match chain.hook {
                Some(Hook::SourceNat) => {
                    writeln!(
                        f,
                        "\t\ttype nat hook postrouting priority srcnat; policy accept;"
                    )?;
                }
                None => {}
            }
            for rule in &chain.rules {
                write!(f, "\t\t")?;
                match rule.matches {
                    Some(Match::Source(network)) => write!(f, "{ip} saddr {} ", bare(network))?,
                    Some(Match::Destination(network)) => {
                        write!(f, "{ip} daddr {} ", bare(network))?;
                    }
                    None => {}
                }
                match rule.action {
                    Action::Return => write!(f, "return")?,
                    Action::Jump(chain) => write!(f, "jump {chain}")?,
                    Action::Masquerade => write!(f, "masquerade fully-random")?,
                }
                writeln!(f, " comment \"{}\"", rule.comment)?;
            }
            writeln!(f, "\t}}")?;
        }
        writeln!(f, "}}")
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
