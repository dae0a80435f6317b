//! The backend: commands around the pure part.

use seaway_proxy_core::backend::{Backend, BackendError, RuleCount, Settled};
use seaway_proxy_core::desired::{DesiredState, Family};
use seaway_proxy_core::explain::kernel::{Inspection, Subject};
use seaway_proxy_core::skipped::Skipped;
use tokio::time::sleep_until;
use tracing::warn;

use crate::command::CommandError;
use crate::config::Config;
use crate::conntrack::Conntrack;
use crate::flavour::{self, Flavour};
use crate::inspect;
use crate::lacking::Lacking;
use crate::localhost::Localhost;
use crate::render;
use crate::rendered::{LOCALHOST, Rendered};
use crate::unsupported;
use crate::watch::Watch;

mod clients;
mod probing;
mod reading;
mod removal;
mod stuck;
mod told;
mod writing;

use reading::Trust;
use stuck::Stuck;
use told::Told;

/// Programs Services through iptables, in the network namespace of the thread
/// that polls its futures.
#[derive(Debug)]
pub struct Iptables {
    config: Config,
    flavour: Flavour,
    families: &'static [Family],
    /// Whether there is ipset.
    affinity: bool,
    /// Whether the other flavour may still hold rules of an earlier run.
    check_other: bool,
    /// Whether it has been told that it does, and cannot be cleared.
    told_other: bool,
    /// Whether our rules are not all written, so that those may still be needed.
    behind: bool,
    conntrack: Conntrack,
    localhost: Localhost,
    watch: Watch,
    lacking: Lacking,
    trust: Trust,
    stuck: Stuck,
    told: Told,
}

impl Iptables {
    /// Finds out, unless configured, which flavour this node uses. Writes nothing.
    ///
    /// # Errors
    /// iptables is not installed or does not work.
    pub async fn new(config: Config) -> Result<Self, BackendError> {
        Self::open(config, false).await
    }

    /// The same for somebody who is about to write: where no rule shows that the kernel
    /// translates IPv6, that is tried out.
    ///
    /// # Errors
    /// Likewise.
    pub async fn for_writing(config: Config) -> Result<Self, BackendError> {
        Self::open(config, true).await
    }

    async fn open(config: Config, writes: bool) -> Result<Self, BackendError> {
        let flavour = match config.flavour {
            Some(flavour) => flavour,
            None => flavour::detect(&config)
                .await
                .map_err(|e| failure("find the iptables flavour of this node", e))?,
        };
        let mut new = Self {
            conntrack: Conntrack::new(&config.run_dir),
            localhost: Localhost::new(&config.run_dir),
            config,
            flavour,
            families: &Family::ALL,
            affinity: true,
            check_other: true,
            told_other: false,
            behind: false,
            watch: Watch::new(flavour, &Family::ALL),
            lacking: Lacking::default(),
            trust: Trust::default(),
            stuck: Stuck::default(),
            told: Told::default(),
        };
        if !new.has_ipv6(writes).await? {
            new.families = &[Family::V4];
            new.watch = Watch::new(flavour, new.families);
        }
        new.affinity = new.has_ipset().await;
        Ok(new)
    }

    /// The flavour in use.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn rendered(&self, desired: &DesiredState, have: Option<&Rendered>) -> Rendered {
        let mut rendered = Rendered::default();
        for &family in self.families {
            *rendered.family_mut(family) = render::render(
                &self.config,
                self.affinity,
                &self.lacking,
                family,
                desired.family(family),
                have.map(|have| have.family(family)),
            );
        }
        rendered
    }
}

fn failure(what: impl Into<String>, error: CommandError) -> BackendError {
    let retry = error.retry();
    BackendError::new(what, retry).because(error)
}

impl Backend for Iptables {
    type Rendered = Rendered;

    fn name(&self) -> &'static str {
        "iptables"
    }

    fn variant(&self) -> Option<String> {
        Some(self.flavour.to_string())
    }

    fn inspect(&self, have: &Rendered, want: &Rendered, subject: &Subject) -> Inspection {
        inspect::inspect(have, want, subject)
    }

    fn families(&self) -> &'static [Family] {
        self.families
    }

    fn count(&self, have: &Rendered, want: &Rendered) -> Vec<RuleCount> {
        let families = self.families.iter();
        families
            .flat_map(|&family| want.count_since(have, family))
            .collect()
    }

    fn render(&self, desired: &DesiredState) -> Rendered {
        self.rendered(desired, None)
    }

    fn render_beside(&self, have: &Rendered, desired: &DesiredState) -> Rendered {
        self.rendered(desired, Some(have))
    }

    fn remember(&self, mut rendered: Rendered) -> Rendered {
        rendered.forget();
        rendered
    }

    fn unsupported(&self, desired: &DesiredState) -> Vec<Skipped> {
        unsupported::of(desired, self.families, self.affinity, &self.lacking)
    }

    async fn read_back(&mut self) -> Result<Rendered, BackendError> {
        self.destroy_stuck().await;
        let mut have = self.read_all(false).await?;
        // What is read once more brings it back.
        self.stuck.leave_out(&mut have);
        self.check_listing(&mut have).await;
        self.stuck.leave_out(&mut have);
        Ok(have)
    }

    async fn read_in_full(&mut self) -> Result<Rendered, BackendError> {
        self.read_all(true).await
    }

    fn prepare(&mut self, desired: &DesiredState) {
        self.conntrack.prepare(self.families, desired);
    }

    async fn apply(&mut self, have: &Rendered, want: &Rendered) -> Result<(), BackendError> {
        self.stuck.want(want);
        if let Err(error) = self.create_sets(have, want).await {
            self.find_lacking_sets(have, &error).await;
            return Err(failure("create sets of clients", error));
        }
        self.replace_sets(have, want).await;
        if !want.v4.filter.chains.contains_key(LOCALHOST) {
            // Before the rules go that keep strangers from the loopback addresses.
            self.close_localhost()?;
        }
        self.behind = true;
        self.write_and_tell(have, want).await?;
        self.behind = false;
        // Rules of the other flavour may look into sets, too.
        self.clear_other_at_last().await;
        if let Err(error) = self.destroy_sets(have, want).await {
            warn!(%error, "Cannot destroy sets of clients, trying again now and then");
        }
        Ok(())
    }

    async fn attend(&mut self) {
        self.watch.attend().await;
    }

    async fn disturbed(&mut self) {
        let both = [self.lacking.again_at(), self.conntrack.again_at()];
        let Some(again_at) = both.into_iter().flatten().min() else {
            return self.watch.disturbed().await;
        };
        tokio::select! {
            () = self.watch.disturbed() => {}
            () = sleep_until(again_at) => self.watch.alarm(),
        }
    }

    fn is_watched(&self) -> bool {
        self.watch.works()
    }

    async fn settle(&mut self, desired: &DesiredState, written: &[Family]) -> Vec<Settled> {
        if !written.is_empty() {
            self.look_for_lacking().await;
            self.clear_other_at_last().await;
            self.open_localhost(desired);
        }
        self.conntrack.settle(self.families, written, desired).await
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        self.remove_everything().await.map(|_any| ())
    }
}
