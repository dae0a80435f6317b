//! What an operator may choose.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seaway_proxy_core::desired::Family;

use crate::flavour::Flavour;

/// The programs of one flavour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Like `iptables-save`.
    pub save: PathBuf,
    /// Like `iptables-restore`.
    pub restore: PathBuf,
    /// Like `ip6tables-save`.
    pub save_v6: PathBuf,
    /// Like `ip6tables-restore`.
    pub restore_v6: PathBuf,
}

impl Commands {
    /// `iptables-{infix}save` and so on, from `PATH`.
    pub(crate) fn named(infix: &str) -> Self {
        Self {
            save: format!("iptables-{infix}save").into(),
            restore: format!("iptables-{infix}restore").into(),
            save_v6: format!("ip6tables-{infix}save").into(),
            restore_v6: format!("ip6tables-{infix}restore").into(),
        }
    }

    pub(crate) fn save(&self, family: Family) -> &Path {
        match family {
            Family::V4 => &self.save,
            Family::V6 => &self.save_v6,
        }
    }

    pub(crate) fn restore(&self, family: Family) -> &Path {
        match family {
            Family::V4 => &self.restore,
            Family::V6 => &self.restore_v6,
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
    /// Whether IPv6 is served; `None`: where ip6tables works, and the kernel has NAT for it.
    pub ipv6: Option<bool>,
    /// Like `ipset`.
    pub ipset: PathBuf,
    /// Whether session affinity is served, as far as the kernel can; `None`: where ipset works.
    pub affinity: Option<bool>,
    /// Whether packets of pods that conntrack cannot place are dropped instead of
    /// being forwarded. Without it such a packet reaches the client with the
    /// pod's address instead of the Service's, and the client ends the
    /// connection. Not needed while `nf_conntrack_tcp_be_liberal` is set.
    pub drop_invalid: bool,
    /// Packet mark for "masquerade this", one bit. 0x4000 is what other
    /// software expects to be taken by the service proxy.
    pub masquerade_mark: u32,
    /// Where it is remembered which sysctls of the node are ours to set back, and where UDP and
    /// SCTP are served.
    pub run_dir: PathBuf,
    /// How often a module that the kernel lacks is looked for again.
    pub module_retry: Duration,
    /// How long one command may take, waiting for the xtables lock included.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flavour: None,
            nft: Commands::named("nft-"),
            legacy: Commands::named("legacy-"),
            ipv6: None,
            ipset: "ipset".into(),
            affinity: None,
            drop_invalid: true,
            masquerade_mark: 0x4000,
            run_dir: "/run/seaway".into(),
            module_retry: Duration::from_mins(1),
            timeout: Duration::from_mins(1),
        }
    }
}
