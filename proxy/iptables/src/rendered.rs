//! What of ours is in the kernel, as `iptables-save` would print it.

use std::collections::BTreeMap;
use std::fmt;

use seaway_proxy_core::backend::RuleCount;
use seaway_proxy_core::desired::Family;

use crate::sets::Sets;

mod body;
mod phrases;
mod strangers;
mod transaction;

pub(crate) use body::Body;
pub(crate) use strangers::{Stranger, deletion};

/// Longest chain name: `XT_EXTENSION_MAXNAMELEN` (29, with the final zero) of
/// the kernel's `include/uapi/linux/netfilter/x_tables.h`.
pub(crate) const CHAIN_NAME_MAX: usize = 28;

/// How the names of all our chains and sets begin.
pub(crate) const PREFIX: &str = "SEAWAY-";
/// Entry chain of nat and filter.
pub(crate) const SERVICES: &str = "SEAWAY-SERVICES";
/// Root of the tree over addresses of their own.
pub(crate) const ADDRESSES: &str = "SEAWAY-ADDRESSES";
/// Decides whether an address of the node serves NodePorts.
pub(crate) const NODE_PORTS: &str = "SEAWAY-NODE-PORTS";
/// Root of the tree over NodePorts.
pub(crate) const PORTS: &str = "SEAWAY-PORTS";
/// Entry chain of nat's POSTROUTING.
pub(crate) const POSTROUTING: &str = "SEAWAY-POSTROUTING";
/// Masquerades what a local endpoint sent to itself.
pub(crate) const HAIRPIN: &str = "SEAWAY-HAIRPIN";
/// Marks what does not come from a pod.
pub(crate) const MARK_OUTSIDE: &str = "SEAWAY-MARK-OUTSIDE";
/// Masquerades what is marked.
pub(crate) const MASQUERADE: &str = "SEAWAY-MASQUERADE";
/// Lets pass what belongs to Services, under whatever policy FORWARD has.
pub(crate) const FORWARD: &str = "SEAWAY-PROXY-FORWARD";
/// Lets load balancers ask for this node's health.
pub(crate) const HEALTH: &str = "SEAWAY-HEALTH";
/// Drops what conntrack cannot place on its way to the node itself.
pub(crate) const INVALID: &str = "SEAWAY-INVALID";
/// Keeps 127.0.0.0/8 from the wire.
pub(crate) const LOCALHOST: &str = "SEAWAY-LOCALHOST";
/// An endpoint that its clients come back to.
pub(crate) const ENDPOINT_PREFIX: &str = "SEAWAY-SEP-";
/// The endpoints of a Service port for policy Cluster, or Local.
pub(crate) const SERVICE_PREFIX: &str = "SEAWAY-SVC-";
/// Likewise, Local.
pub(crate) const LOCAL_PREFIX: &str = "SEAWAY-SVL-";
/// What happens to clients of a Service port's cluster IP.
pub(crate) const INTERNAL_PREFIX: &str = "SEAWAY-INT-";
/// What happens to clients of its other addresses.
pub(crate) const EXTERNAL_PREFIX: &str = "SEAWAY-EXT-";
/// Who may use its load balancer IPs.
pub(crate) const RANGES_PREFIX: &str = "SEAWAY-FW-";
/// Inner nodes of the trees over addresses, NodePorts, health check ports and
/// this node's endpoints.
pub(crate) const NET_PREFIX: &str = "SEAWAY-NET-";
/// See [`NET_PREFIX`].
pub(crate) const PORT_PREFIX: &str = "SEAWAY-PORT-";
/// See [`NET_PREFIX`].
pub(crate) const HEALTH_PREFIX: &str = "SEAWAY-HC-";
/// See [`NET_PREFIX`].
pub(crate) const HAIRPIN_PREFIX: &str = "SEAWAY-HAIR-";

/// Services' own chains: who is led to comes before who leads there.
const OWN_PREFIXES: [&str; 6] = [
    ENDPOINT_PREFIX,
    SERVICE_PREFIX,
    LOCAL_PREFIX,
    INTERNAL_PREFIX,
    EXTERNAL_PREFIX,
    RANGES_PREFIX,
];
/// Inner nodes of trees, which lead to each other and to those.
const TREE_PREFIXES: [&str; 4] = [NET_PREFIX, PORT_PREFIX, HEALTH_PREFIX, HAIRPIN_PREFIX];

/// Whether a chain belongs to this backend: by its beginning, so that what another version
/// has made under names of its own goes as well. No other part of Seaway has chains in iptables.
pub(crate) fn is_ours(chain: &str) -> bool {
    chain.starts_with(PREFIX)
}

/// Our part of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// Our chains.
    pub(crate) chains: BTreeMap<String, Body>,
    /// Rules in built-in (or others') chains that lead to ours: built-in chain
    /// and the rest of the line. Sorted; twice if it is there twice.
    pub(crate) jumps: Vec<(String, String)>,
}

/// Our rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rendered {
    /// `iptables`
    pub v4: Tables,
    /// `ip6tables`
    pub v6: Tables,
}

impl Rendered {
    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The rules of one family.
    pub(crate) fn family(&self, family: Family) -> &Tables {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// Forgets the words of all rules, of which what they are told by is left.
    pub(crate) fn forget(&mut self) {
        for tables in [&mut self.v4, &mut self.v6] {
            for table in [&mut tables.nat, &mut tables.filter] {
                table.chains.values_mut().for_each(Body::forget);
            }
        }
    }

    /// The rules of one family, and which of them are not in `before`.
    pub(crate) fn count_since(&self, before: &Self, family: Family) -> [RuleCount; 2] {
        let (want, have) = (self.family(family), before.family(family));
        [
            ("filter", &want.filter, &have.filter),
            ("nat", &want.nat, &have.nat),
        ]
        .map(|(table, want, have)| RuleCount {
            family,
            table,
            total: want.rules(|_, _| true) + want.jumps.len(),
            written: want.rules(|chain, body| have.chains.get(chain) != Some(body))
                + want
                    .jumps
                    .iter()
                    .filter(|jump| !have.jumps.contains(jump))
                    .count(),
        })
    }

    pub(crate) fn family_mut(&mut self, family: Family) -> &mut Tables {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

impl fmt::Display for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for family in Family::ALL {
            write!(f, "# {family}\n{}", self.family(family))?;
        }
        Ok(())
    }
}

/// Our part of the nat and filter tables of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    /// Address translation.
    pub nat: Table,
    /// Refusal of what has no endpoints, and what else is let in or not.
    pub filter: Table,
    /// The sets that rules of nat look into.
    pub(crate) sets: Sets,
}

impl Tables {
    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes another's chains and sets in. Of what is in `have` just so, the words are not
    /// needed.
    pub(crate) fn absorb(&mut self, other: Self, have: Option<&Self>) {
        let Self { nat, filter, sets } = other;
        self.nat.absorb(nat, have.map(|have| &have.nat));
        self.filter.absorb(filter, have.map(|have| &have.filter));
        self.sets.extend(sets);
    }
}

impl Table {
    /// Appends a rule, given without its `-A chain`.
    pub(crate) fn push(&mut self, chain: &str, rule: fmt::Arguments<'_>) {
        let body = match self.chains.get_mut(chain) {
            Some(body) => body,
            None => self.chains.entry(chain.to_owned()).or_default(),
        };
        body.push(&format!(" {rule}"));
    }

    fn absorb(&mut self, other: Self, have: Option<&Self>) {
        for (chain, mut body) in other.chains {
            if have.is_some_and(|have| have.chains.get(&chain) == Some(&body)) {
                body.forget();
            }
            body.shrink();
            self.chains.insert(chain, body);
        }
        self.jumps.extend(other.jumps);
    }

    /// Adds a chain without rules, unless it is there.
    pub(crate) fn add_chain(&mut self, chain: &str) {
        debug_assert!(chain.len() <= CHAIN_NAME_MAX, "{chain} is too long");
        self.chains.entry(chain.to_owned()).or_default();
    }

    /// How many are in the chains that `counts` is true for.
    fn rules(&self, counts: impl Fn(&str, &Body) -> bool) -> usize {
        let chains = self.chains.iter();
        let counted = chains.filter(|&(chain, body)| counts(chain, body));
        counted.map(|(_, body)| body.rules()).sum()
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, timeout) in &self.sets {
            writeln!(f, "set {name} timeout {timeout}")?;
        }
        for (name, table) in [("filter", &self.filter), ("nat", &self.nat)] {
            writeln!(f, "*{name}")?;
            for (chain, rule) in &table.jumps {
                writeln!(f, "-I {chain} {rule}")?;
            }
            for (chain, body) in &table.chains {
                writeln!(f, ":{chain}")?;
                for line in body.lines(chain) {
                    writeln!(f, "{line}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
