//! iptables comes in two flavours that share the kernel but not their rules.
//!
//! A packet passes both; whoever mixes them has rules that neither shows. So
//! everybody on a node should use the same, and this finds out which one.

use std::fmt;

use seaway_proxy_core::desired::Family;
use tokio::task::spawn_blocking;
use tracing::info;

use crate::command::{self, CommandError};
use crate::config::{Commands, Config};
use crate::listing::{self, Kernel};
use crate::rendered::is_ours;

/// Which kernel interface iptables talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `nf_tables`
    Nft,
    /// `ip_tables`
    Legacy,
}

impl Flavour {
    /// The one that is not this.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Nft => Self::Legacy,
            Self::Legacy => Self::Nft,
        }
    }

    pub(crate) fn commands(self, config: &Config) -> &Commands {
        match self {
            Self::Nft => &config.nft,
            Self::Legacy => &config.legacy,
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nft => "nft",
            Self::Legacy => "legacy",
        })
    }
}

/// The flavour that this node uses.
///
/// # Errors
/// Neither flavour works; the error is the nft one's.
pub(crate) async fn detect(config: &Config) -> Result<Flavour, CommandError> {
    let legacy = traces(config, Flavour::Legacy).await;
    let nft = match listed(config).await {
        // Only who has as many rules needs to be counted.
        Ok(Some(nft)) if legacy.as_ref().map_or(0, |legacy| legacy.rules) == 0 => Ok(nft),
        Ok(_) => traces(config, Flavour::Nft).await,
        Err(error) => Err(error),
    };
    let flavour = match (nft, legacy) {
        (Ok(nft), Ok(legacy)) => choose(&nft, &legacy),
        // Not installed, or no support in this kernel.
        (Ok(_), Err(_)) => Flavour::Nft,
        (Err(_), Ok(_)) => Flavour::Legacy,
        (Err(e), Err(_)) => return Err(e),
    };
    info!(%flavour, "Found the iptables flavour of this node");
    Ok(flavour)
}

/// Those of nft but for the number of rules, without all of them in the memory of
/// `iptables-nft-save`; `None` if the kernel does not list them.
async fn listed(config: &Config) -> Result<Option<Traces>, CommandError> {
    command::is_installed(&config.nft.save, config.timeout).await?;
    let Ok(mut kernel) = Kernel::open(Family::V4) else {
        return Ok(None);
    };
    let look = move || {
        let mut traces = Traces::default();
        let listed = listing::each_chain(&mut kernel, |table, chain| {
            traces.table(table);
            traces.chain(chain);
        });
        listed.ok().map(|()| traces)
    };
    let looked = spawn_blocking(look).await;
    Ok(looked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
}

/// Of all tables that exist. Without `-t`, so that no table comes into being by
/// being looked at.
async fn traces(config: &Config, flavour: Flavour) -> Result<Traces, CommandError> {
    // Who uses IPv6 uses IPv4, too, and the other way round not always.
    let save = &flavour.commands(config).save;
    let mut traces = Traces::default();
    command::each_line(save, &[], config.timeout, |line| traces.take(line)).await?;
    Ok(traces)
}

/// What a dump tells about who uses the flavour.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traces {
    /// The chain by which a kubelet tells which one it uses: KEP-3178, or its
    /// predecessor.
    hint: bool,
    /// Chains of an earlier run.
    ours: bool,
    rules: usize,
    /// Whether lines are of a table that has chains of ours.
    in_ours: bool,
}

impl Traces {
    fn take(&mut self, line: &str) {
        if let Some(table) = line.strip_prefix('*') {
            self.table(table);
        }
        if let Some(declared) = line.strip_prefix(':') {
            self.chain(declared.split(' ').next().unwrap_or_default());
        }
        self.rules += usize::from(line.starts_with("-A "));
    }

    /// A namesake of our chains in another table is not ours, and stays.
    fn table(&mut self, table: &str) {
        self.in_ours = listing::TABLES.contains(&table);
    }

    fn chain(&mut self, chain: &str) {
        self.hint |= matches!(chain, "KUBE-IPTABLES-HINT" | "KUBE-KUBELET-CANARY");
        self.ours |= self.in_ours && is_ours(chain);
    }
}

/// The kubelet's word first, then our own earlier choice, then the majority.
/// With nothing to go by nft, which is where new systems are.
fn choose(nft: &Traces, legacy: &Traces) -> Flavour {
    let rank = |traces: &Traces| (traces.hint, traces.ours, traces.rules);
    if rank(legacy) > rank(nft) {
        Flavour::Legacy
    } else {
        Flavour::Nft
    }
}

#[cfg(test)]
mod tests;
