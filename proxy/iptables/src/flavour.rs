//! iptables comes in two flavours that share the kernel but not their rules.
//!
//! A packet passes both; whoever mixes them has rules that neither shows. So
//! everybody on a node should use the same, and this finds out which one.

use std::fmt;

use tracing::info;

use crate::command::{self, CommandError};
use crate::config::{Commands, Config};
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
    let nft = dump(config, Flavour::Nft).await;
    let legacy = dump(config, Flavour::Legacy).await;
    let flavour = match (nft, legacy) {
        (Ok(nft), Ok(legacy)) => choose(&Traces::of(&nft), &Traces::of(&legacy)),
        // Not installed, or no support in this kernel.
        (Ok(_), Err(_)) => Flavour::Nft,
        (Err(_), Ok(_)) => Flavour::Legacy,
        (Err(e), Err(_)) => return Err(e),
    };
    info!(%flavour, "Found the iptables flavour of this node");
    Ok(flavour)
}

/// All tables that exist. Without `-t`, so that no table comes into being by
/// being looked at.
async fn dump(config: &Config, flavour: Flavour) -> Result<String, CommandError> {
    // Who uses IPv6 uses IPv4, too, and the other way round not always.
    let save = &flavour.commands(config).save;
    command::run(save, &[], "", config.timeout).await
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
}

impl Traces {
    fn of(dump: &str) -> Self {
        let mut traces = Self::default();
        for line in dump.lines() {
            if let Some(declared) = line.strip_prefix(':') {
                let chain = declared.split(' ').next().unwrap_or_default();
                traces.hint |= matches!(chain, "KUBE-IPTABLES-HINT" | "KUBE-KUBELET-CANARY");
                traces.ours |= is_ours(chain);
            }
            traces.rules += usize::from(line.starts_with("-A "));
        }
        traces
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
