//! Notices that somebody else may have changed our rules, without reading them.
//!
//! ```text
//! attend ─► … our own writes … ─► disturbed? ─► the caller reads back, after `attend`
//! ```
//!
//! iptables-nft is heard by nftables' notifications (see `nft`), iptables-legacy is
//! asked for the shape of its tables (see `legacy`). Neither says that something is
//! wrong: that takes a reading, which the caller makes as rarely as it likes.
//!
//! Without either, as where the kernel has no such socket, nothing is noticed, and
//! [`Watch::works`] says so.

use std::time::Duration;

use seaway_proxy_core::desired::Family;
use tracing::warn;

use crate::flavour::Flavour;

mod legacy;
mod nft;

/// The tables that have rules of ours.
const TABLES: [&str; 2] = ["nat", "filter"];

/// How often iptables-legacy is asked.
const LOOK: Duration = Duration::from_secs(2);

/// What listens.
#[derive(Debug)]
enum Ear {
    Nft(nft::Ear),
    Legacy(legacy::Ear),
}

/// A watch of one flavour's tables, which opens itself when it is first needed.
#[derive(Debug)]
pub(crate) struct Watch {
    flavour: Flavour,
    families: &'static [Family],
    ear: Option<Ear>,
    disturbed: bool,
    /// Whether it has been told that there is none.
    told: bool,
}

/// Why there is no watch.
#[derive(Debug, thiserror::Error)]
enum NoWatch {
    #[error("listen to nftables")]
    Nft(#[from] seaway_firewall::FirewallError),
    #[error("look at iptables-legacy")]
    Legacy(#[from] seaway_netlink::NetlinkError),
    #[error("wait for notifications")]
    Wait(#[from] std::io::Error),
}

impl Watch {
    pub(crate) fn new(flavour: Flavour, families: &'static [Family]) -> Self {
        Self {
            flavour,
            families,
            ear: None,
            disturbed: false,
            told: false,
        }
    }

    /// Whether a change would be noticed.
    pub(crate) fn works(&self) -> bool {
        self.ear.is_some()
    }

    /// What was done so far is known; only what comes from now on counts.
    pub(crate) async fn attend(&mut self) {
        let done = match &mut self.ear {
            Some(ear) => ear.forget().await,
            None => match self.open() {
                Ok(mut ear) => {
                    self.told = false;
                    let done = ear.forget().await;
                    self.ear = Some(ear);
                    done
                }
                Err(error) => Err(error),
            },
        };
        self.outcome(done.map(|()| false));
        // Also where nothing can be heard: everything is about to be read.
        self.disturbed = false;
    }

    /// In the polling thread's network namespace.
    fn open(&self) -> Result<Ear, NoWatch> {
        Ok(match self.flavour {
            Flavour::Nft => Ear::Nft(nft::Ear::open(self.families)?),
            Flavour::Legacy => Ear::Legacy(legacy::Ear::open(self.families)?),
        })
    }

    /// We are about to write, and perhaps much; what has come before is somebody else's.
    pub(crate) fn before_write(&mut self, large: bool) {
        let heard = match &mut self.ear {
            None => Ok(false),
            Some(Ear::Nft(ear)) => ear.before_write(large),
            Some(Ear::Legacy(ear)) => Ok(ear.differs()),
        };
        self.outcome(heard);
    }

    /// We have written this many transactions, by which the tables of each family have grown
    /// by these numbers of entries, where that is known.
    pub(crate) async fn after_write(&mut self, transactions: u32, grown: Option<&[i64]>) {
        let heard = match &mut self.ear {
            None => Ok(false),
            Some(Ear::Nft(ear)) => ear.after_write(transactions),
            Some(Ear::Legacy(ear)) => ear.after_write(grown).await,
        };
        self.outcome(heard);
    }

    /// There is another reason to read everything back.
    pub(crate) fn alarm(&mut self) {
        self.disturbed = true;
    }

    /// Returns when somebody else may have changed rules of ours since
    /// [`attend`](Self::attend). May be given up and called again.
    pub(crate) async fn disturbed(&mut self) {
        while !self.disturbed {
            let heard = match &mut self.ear {
                None => return std::future::pending().await,
                Some(Ear::Nft(ear)) => ear.next().await,
                Some(Ear::Legacy(ear)) => ear.next().await,
            };
            self.outcome(heard);
        }
    }

    fn outcome(&mut self, heard: Result<bool, NoWatch>) {
        match heard {
            Ok(disturbed) => self.disturbed |= disturbed,
            Err(error) => {
                // Opened again with the next reading, which is to be soon: until then nothing
                // is noticed.
                self.ear = None;
                self.disturbed = true;
                if !std::mem::replace(&mut self.told, true) {
                    warn!(error = %Causes(&error), "Cannot notice changes of our rules at once, reading them back now and then");
                }
            }
        }
    }
}

impl Ear {
    async fn forget(&mut self) -> Result<(), NoWatch> {
        match self {
            Self::Nft(ear) => ear.forget(),
            Self::Legacy(ear) => ear.forget().await,
        }
    }
}

/// An error with all of its causes.
struct Causes<'a>(&'a NoWatch);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
