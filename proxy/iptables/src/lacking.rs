//! Modules that some Services need and that this kernel may not have.
//!
//! A rule that needs one fails its whole transaction, and with it everybody else's. So
//! after a failure each is tried alone, in a chain that nothing leads to; Services that
//! need one that is missing are left out and named, until it is there. For sets of clients
//! that is their affinity alone.

use std::collections::BTreeSet;
use std::time::Duration;

use seaway_proxy_core::desired::{Family, Protocol, ServicePort};
use tokio::time::Instant;

use crate::rendered::{NET_PREFIX, Tables};
use crate::sets;

/// A part of the kernel that can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Module {
    /// Matches ports of SCTP.
    Sctp,
    /// Shares connections out among several endpoints.
    Statistic,
    /// Remembers clients: the kind of set, or what looks into one.
    Sets,
}

impl Module {
    const ALL: [Self; 3] = [Self::Sctp, Self::Statistic, Self::Sets];

    fn conditions(self) -> String {
        match self {
            Self::Sctp => "-p sctp -m sctp --dport 9".to_owned(),
            Self::Statistic => "-m statistic --mode random --probability 0.50000000000".to_owned(),
            Self::Sets => format!("-m set --match-set {} src", sets::PROBE),
        }
    }

    /// As `modprobe` knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sctp => "xt_sctp",
            Self::Statistic => "xt_statistic",
            Self::Sets => "ip_set_hash_ip or xt_set",
        }
    }

    /// What is done without it.
    pub(crate) fn cost(self) -> &'static str {
        match self {
            Self::Sctp | Self::Statistic => "Services that need it are left out",
            Self::Sets => "Services are served without session affinity",
        }
    }

    fn is_in(self, tables: &Tables) -> bool {
        let words: &[&str] = match self {
            Self::Sctp => &[" -m sctp "],
            Self::Statistic => &[" -m statistic "],
            Self::Sets => &[" -m set ", " -j SET "],
        };
        let both = [&tables.nat, &tables.filter];
        let chains = both.into_iter().flat_map(|table| &table.chains);
        let mut lines = chains.flat_map(|(chain, body)| body.lines(chain));
        lines.any(|line| words.iter().any(|word| line.contains(word)))
    }

    fn is_needed_by(self, port: &ServicePort) -> bool {
        match self {
            Self::Sctp => port.frontends.iter().any(|f| f.protocol == Protocol::Sctp),
            Self::Statistic => port.cluster.len() > 1 || port.local.len() > 1,
            // Who remembers nobody serves all the same.
            Self::Sets => false,
        }
    }

    /// A transaction that fails without it, and one that removes what it has left.
    pub(crate) fn probe(self) -> [String; 2] {
        probe("filter", &format!("{} -j RETURN", self.conditions()))
    }
}

/// The same with a rule that needs nothing.
pub(crate) fn control() -> [String; 2] {
    probe("filter", "-j RETURN")
}

/// The same with what no Service of this family is served without.
pub(crate) fn translation(family: Family) -> [String; 2] {
    let to = match family {
        Family::V4 => "127.0.0.1:9",
        Family::V6 => "[::1]:9",
    };
    probe("nat", &format!("-p tcp -j DNAT --to-destination {to}"))
}

/// Two transactions: the kernel would not look at a rule that is gone at the end of its own.
fn probe(table: &str, rule: &str) -> [String; 2] {
    let chain = format!("{NET_PREFIX}probe");
    [
        format!("*{table}\n:{chain} - [0:0]\n-A {chain} {rule}\nCOMMIT\n"),
        format!("*{table}\n:{chain} - [0:0]\n-X {chain}\nCOMMIT\n"),
    ]
}

/// What may be why these tables could not be written. What of them was there already has no
/// words any more, and is not why.
pub(crate) fn suspects(tables: &Tables) -> impl Iterator<Item = Module> {
    let all = Module::ALL.into_iter();
    all.filter(|module| module.is_in(tables))
}

/// What is known to be missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lacking {
    modules: BTreeSet<Module>,
    again_at: Option<Instant>,
}

impl Lacking {
    pub(crate) fn includes(&self, module: Module) -> bool {
        self.modules.contains(&module)
    }

    /// What a Service port needs of it, if anything.
    pub(crate) fn needed_by(&self, port: &ServicePort) -> Option<Module> {
        let mut modules = self.modules.iter().copied();
        modules.find(|module| module.is_needed_by(port))
    }

    /// When something is to be looked for again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.again_at.filter(|_| !self.modules.is_empty())
    }

    /// What is to be looked for again by now.
    pub(crate) fn overdue(&self) -> Vec<Module> {
        let due = self.again_at.is_some_and(|at| Instant::now() >= at);
        let modules = self.modules.iter().filter(|_| due);
        modules.copied().collect()
    }

    /// Whether it is there was found out, and is to be again after `pause`. Tells whether
    /// that is news.
    pub(crate) fn found(&mut self, module: Module, there: bool, pause: Duration) -> bool {
        self.again_at = Some(Instant::now() + pause);
        if there {
            self.modules.remove(&module)
        } else {
            self.modules.insert(module)
        }
    }
}
