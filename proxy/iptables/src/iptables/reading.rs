//! What of ours the kernel holds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use seaway_netlink::NetlinkError;
use seaway_proxy_core::backend::BackendError;
use seaway_proxy_core::desired::Family;
use seaway_proxy_core::sync::fingerprint;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};

use super::{Iptables, failure};
use crate::command::{self, CommandError};
use crate::flavour::Flavour;
use crate::listing::{self, Listing};
use crate::rendered::{Rendered, Tables};
use crate::save;
use crate::sets;

impl Iptables {
    /// What tells our rules apart, and with `words` also what they are.
    pub(super) async fn read_family(
        &self,
        flavour: Flavour,
        family: Family,
        words: bool,
    ) -> Result<Tables, CommandError> {
        if flavour != Flavour::Nft || words || !self.trust.is_given(family) {
            return self.ask_iptables(flavour, family, words).await;
        }
        let in_part = match self.list(family).await {
            Some(listing) if listing.is_understood => return Ok(listing.tables),
            other => other,
        };
        match (self.ask_iptables(flavour, family, words).await, in_part) {
            // Nor can iptables show it, so it is none of our rules: its chain is written again.
            (Err(error), Some(listing)) if error.is_of_nft_alone() => Ok(listing.tables),
            (asked, _) => asked,
        }
    }

    async fn ask_iptables(
        &self,
        flavour: Flavour,
        family: Family,
        words: bool,
    ) -> Result<Tables, CommandError> {
        let program = flavour.commands(&self.config).save(family);
        // Without `-t`: a table that does not exist stays so.
        let mut reader = save::Reader::new(words);
        let take = |line: &str| reader.take(line);
        command::each_line(program, &[], self.config.timeout, take).await?;
        reader.finish().map_err(|source| CommandError::Output {
            program: program.to_owned(),
            source,
        })
    }

    pub(super) async fn read(
        &self,
        flavour: Flavour,
        words: bool,
    ) -> Result<Rendered, CommandError> {
        let mut rendered = Rendered::default();
        for &family in self.families {
            *rendered.family_mut(family) = self.read_family(flavour, family, words).await?;
        }
        Ok(rendered)
    }

    /// What the kernel lists; `None` if it does not.
    async fn list(&self, family: Family) -> Option<Listing> {
        let listed = list(family).await;
        match &listed {
            Ok(listing) if listing.is_understood => {}
            Ok(_) if self.trust.is_news() => {
                info!(%family, "Some rules are not understood, so iptables is asked for all, which takes more memory");
            }
            Ok(_) => debug!(%family, "Some rules are not understood, asking iptables"),
            Err(error) => debug!(%family, %error, "Cannot list rules, asking iptables"),
        }
        listed.ok()
    }

    /// Asks iptables where something else is listed than we wrote, the first time, and when that
    /// comes again: another version of it may have other words for the same, which would be
    /// drift for ever.
    pub(super) async fn check_listing(&mut self, have: &mut Rendered) {
        for &family in self.families {
            let listed = have.family_mut(family);
            if self.flavour != Flavour::Nft || !self.trust.doubts(family, rules(listed)) {
                continue;
            }
            let asked = match self.ask_iptables(self.flavour, family, false).await {
                Ok(asked) => asked,
                // Where only nft can show a table, what is listed is all there is.
                Err(error) => {
                    debug!(%family, %error, "Cannot compare with what iptables says");
                    continue;
                }
            };
            // Once more, for something may have been changed while iptables was asked.
            if let Some(again) = self.list(family).await
                && again.is_understood
            {
                self.trust
                    .settle(family, rules(&again.tables), rules(&asked));
            }
            (listed.nat, listed.filter) = (asked.nat, asked.filter);
        }
    }

    /// Rules and sets.
    pub(super) async fn read_all(&self, words: bool) -> Result<Rendered, BackendError> {
        let read = self.read(self.flavour, words).await;
        let mut read = read.map_err(|e| failure(format!("read the {} rules", self.flavour), e))?;
        if self.affinity {
            let dump = self.list_sets().await;
            let dump = dump.map_err(|e| failure("list the sets of clients", e))?;
            for &family in self.families {
                read.family_mut(family).sets = sets::parse(&dump, family);
            }
        }
        Ok(read)
    }
}

/// Our rules as the kernel lists them, in the network namespace of the polling thread.
async fn list(family: Family) -> Result<Listing, NetlinkError> {
    let kernel = listing::Kernel::open(family)?;
    let listed = spawn_blocking(move || listing::read(kernel)).await;
    listed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Whether what the kernel lists is taken for what iptables would say.
#[derive(Debug, Default)]
pub(super) struct Trust {
    families: HashMap<Family, Known>,
    told: AtomicBool,
}

/// Fingerprints of a family's rules.
#[derive(Debug, Default)]
struct Known {
    /// What was written last.
    written: Option<u64>,
    /// What was listed the last time that it was something else.
    differed: Option<u64>,
    /// Whether that is the same to iptables.
    mistrusted: bool,
}

impl Trust {
    fn is_given(&self, family: Family) -> bool {
        let known = self.families.get(&family);
        known.is_none_or(|known| !known.mistrusted)
    }

    fn is_news(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// Nothing has failed of it.
    pub(super) fn written(&mut self, family: Family, want: &Tables) {
        self.families.entry(family).or_default().written = Some(rules(want));
    }

    fn doubts(&mut self, family: Family, listed: u64) -> bool {
        let known = self.families.entry(family).or_default();
        let differs = known.written.is_some_and(|written| written != listed);
        if known.mistrusted || !differs {
            return false;
        }
        let before = known.differed.replace(listed);
        before.is_none_or(|before| before == listed)
    }

    fn settle(&mut self, family: Family, listed: u64, asked: u64) {
        let known = self.families.entry(family).or_default();
        if listed != asked && known.written == Some(asked) {
            known.mistrusted = true;
            warn!(%family, "iptables writes rules in a way that is not known here, so it is asked for them each time, which takes more memory");
        }
    }
}

fn rules(tables: &Tables) -> u64 {
    fingerprint(&(&tables.nat, &tables.filter))
}
