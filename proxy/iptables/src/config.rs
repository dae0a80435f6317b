//! What an operator may choose.

use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::Ipv4Network;

use crate::flavour::Flavour;

/// The two programs of one flavour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Like `iptables-save`.
    pub save: PathBuf,
    /// Like `iptables-restore`.
    pub restore: PathBuf,
}

impl Commands {
    /// `iptables-{infix}save` and `iptables-{infix}restore`, from `PATH`.
    pub(crate) fn named(infix: &str) -> Self {
        Self {
            save: format!("iptables-{infix}save").into(),
            restore: format!("iptables-{infix}restore").into(),
        }
    }
}

/// Settings of the iptables backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `None`: find out which one the node uses.
    pub flavour: Option<Flavour>,
    /// Programs of the nft flavour.
    pub nft: Commands,
    /// Programs of the legacy flavour.
    pub legacy: Commands,
    /// Sources outside of these networks are masqueraded on their way to a
    /// ClusterIP, because replies to them might take another way. Empty: none
    /// are; right wherever all pods are reached by routes, as in our own pod
    /// network.
    pub cluster_cidrs: Vec<Ipv4Network>,
    /// Packet mark for "masquerade this", one bit. 0x4000 is what other
    /// software expects to be taken by the service proxy.
    pub masquerade_mark: u32,
    /// How long one command may take, waiting for the xtables lock included.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flavour: None,
            nft: Commands::named("nft-"),
            legacy: Commands::named("legacy-"),
            cluster_cidrs: Vec::new(),
            masquerade_mark: 0x4000,
            timeout: Duration::from_mins(1),
        }
    }
}
