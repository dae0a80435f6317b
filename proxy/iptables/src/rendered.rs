//! What of ours is in the kernel, as `iptables-save` would print it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use seaway_proxy_core::desired::Family;

use crate::sets::Sets;

/// Longest chain name: `XT_EXTENSION_MAXNAMELEN` (29, with the final zero) of
/// the kernel's `include/uapi/linux/netfilter/x_tables.h`.
pub(crate) const CHAIN_NAME_MAX: usize = 28;

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

/// Whether a chain belongs to this backend. Other parts of Seaway have chains
/// that begin with `SEAWAY-`, too.
pub(crate) fn is_ours(chain: &str) -> bool {
    const NAMES: [&str; 11] = [
        SERVICES,
        ADDRESSES,
        NODE_PORTS,
        PORTS,
        POSTROUTING,
        HAIRPIN,
        MARK_OUTSIDE,
        MASQUERADE,
        FORWARD,
        HEALTH,
        LOCALHOST,
    ];
    const PREFIXES: [&str; 10] = [
        ENDPOINT_PREFIX,
        SERVICE_PREFIX,
        LOCAL_PREFIX,
        INTERNAL_PREFIX,
        EXTERNAL_PREFIX,
        RANGES_PREFIX,
        NET_PREFIX,
        PORT_PREFIX,
        HEALTH_PREFIX,
        HAIRPIN_PREFIX,
    ];
    NAMES.contains(&chain) || PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// Our part of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Our chains; the value is all of a chain's rules, each as a whole line
    /// that begins with `-A` and ends with a line feed.
    pub(crate) chains: BTreeMap<String, String>,
    /// Rules in built-in (or others') chains that lead to ours: built-in chain
    /// and the rest of the line. Sorted; twice if it is there twice.
    pub(crate) jumps: Vec<(String, String)>,
}

/// Our rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// Input for `iptables-restore --noflush` that leads from `self` to `want`.
    /// Empty if there is nothing to do.
    ///
    /// Filter comes first, so that a Service which loses its last endpoint is
    /// refused from the moment it is no longer translated: the packet would
    /// leave by the default route otherwise.
    pub(crate) fn transaction_to(&self, want: &Self) -> String {
        let mut text = String::new();
        self.filter
            .transaction_to(&want.filter, "filter", &mut text);
        self.nat.transaction_to(&want.nat, "nat", &mut text);
        text
    }
}

impl Table {
    /// Appends a rule, given without its `-A chain`.
    pub(crate) fn push(&mut self, chain: &str, rule: fmt::Arguments<'_>) {
        let body = match self.chains.get_mut(chain) {
            Some(body) => body,
            None => self.chains.entry(chain.to_owned()).or_default(),
        };
        writeln!(body, "-A {chain} {rule}").expect("writing to a String cannot fail");
    }

    /// Adds a chain without rules, unless it is there.
    pub(crate) fn add_chain(&mut self, chain: &str) {
        debug_assert!(chain.len() <= CHAIN_NAME_MAX, "{chain} is too long");
        self.chains.entry(chain.to_owned()).or_default();
    }

    fn transaction_to(&self, want: &Self, name: &str, text: &mut String) {
        if self == want {
            return;
        }
        let changed: Vec<_> = want
            .chains
            .iter()
            .filter(|&(chain, body)| self.chains.get(chain) != Some(body))
            .collect();
        let gone: Vec<_> = self
            .chains
            .keys()
            .filter(|c| !want.chains.contains_key(*c))
            .collect();

        let mut lines = String::new();
        // Declaring a chain creates it, or empties it.
        for chain in changed
            .iter()
            .map(|&(chain, _)| chain)
            .chain(gone.iter().copied())
        {
            push_line(&mut lines, format_args!(":{chain} - [0:0]"));
        }
        lines.extend(changed.iter().map(|(_, body)| body.as_str()));
        self.jump_changes(want, &mut lines);
        for chain in gone {
            push_line(&mut lines, format_args!("-X {chain}"));
        }
        push_line(text, format_args!("*{name}\n{lines}COMMIT"));
    }

    /// Missing jumps come first in their chain, before others' rules that
    /// accept or translate; superfluous ones go.
    fn jump_changes(&self, want: &Self, lines: &mut String) {
        let all: BTreeSet<_> = self.jumps.iter().chain(&want.jumps).collect();
        for jump in all {
            let count = |jumps: &[(String, String)]| jumps.iter().filter(|j| *j == jump).count();
            let (have, needed) = (count(&self.jumps), count(&want.jumps));
            let (chain, rule) = jump;
            for _ in have..needed {
                push_line(lines, format_args!("-I {chain} {rule}"));
            }
            for _ in needed..have {
                push_line(lines, format_args!("-D {chain} {rule}"));
            }
        }
    }
}

fn push_line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
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
                f.write_str(body)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
