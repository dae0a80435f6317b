//! What the kernel and the programs of this node lack.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use seaway_proxy_core::backend::{BackendError, Retry};
use seaway_proxy_core::desired::Family;
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use super::{Iptables, failure};
use crate::command::{self, CommandError};
use crate::flavour::Flavour;
use crate::lacking::{self, Module};
use crate::rendered::{Rendered, Tables};

/// How long after a refusal it is asked once more, before anything is given up for it.
const DOUBT: Duration = Duration::from_millis(200);

impl Iptables {
    /// Whether ip6tables works, and the kernel has what we need of it.
    ///
    /// # Errors
    /// It cannot be told now; another try may work.
    pub(super) async fn has_ipv6(&self, writes: bool) -> Result<bool, BackendError> {
        if let Some(configured) = self.config.ipv6 {
            return Ok(configured);
        }
        let mut read = self.read_ipv6().await;
        if read.as_ref().is_err_and(|error| !self.is_not_here(error)) {
            // What passes is not to cost IPv6 until the next start.
            sleep(DOUBT).await;
            read = self.read_ipv6().await;
        }
        match read {
            // What an earlier run has written need not be tried out.
            Ok(tables) if writes && tables.nat.chains.is_empty() => Ok(!self.lacks_ipv6().await),
            Ok(_) => Ok(true),
            Err(error) if self.is_not_here(&error) => {
                info!(%error, "No ip6tables here, so IPv6 is not served");
                Ok(false)
            }
            // Nor is what lasts to cost IPv4.
            Err(error) if writes => {
                warn!(%error, "Cannot tell whether ip6tables works, so IPv6 is not served until a start finds out");
                Ok(false)
            }
            Err(error) => Err(failure("find out whether ip6tables works", error)),
        }
    }

    async fn read_ipv6(&self) -> Result<Tables, CommandError> {
        let program = self.flavour.commands(&self.config).save(Family::V6);
        command::is_installed(program, self.config.timeout).await?;
        self.read_family(self.flavour, Family::V6, false).await
    }

    /// A kernel without NAT for IPv6 says to readers that there is no rule. Each write would
    /// fail, and this node never be in sync.
    async fn lacks_ipv6(&self) -> bool {
        if self.refuses_ipv6().await.is_none() {
            return false;
        }
        // What passes is not to cost IPv6 until the next start.
        sleep(DOUBT).await;
        let Some(error) = self.refuses_ipv6().await else {
            return false;
        };
        warn!(%error, "The kernel has no NAT for IPv6, so IPv6 is not served until a start finds it");
        true
    }

    /// What is said against a translation of IPv6, where the same of IPv4 is taken.
    async fn refuses_ipv6(&self) -> Option<CommandError> {
        let [v4, v6] = [Family::V4, Family::V6].map(lacking::translation);
        let error = self.try_out(Family::V6, v6).await.err()?;
        if self.waited_in_vain(&error) || !error.is_refusal() {
            return None;
        }
        let taken = self.try_out(Family::V4, v4).await.is_ok();
        taken.then_some(error)
    }

    /// Whether somebody else has held the lock all the time, so that nothing was refused. Only
    /// legacy takes one, and nft has the same status for what it is refused.
    pub(super) fn waited_in_vain(&self, error: &CommandError) -> bool {
        self.flavour == Flavour::Legacy && error.retry() == Retry::Now
    }

    pub(super) async fn has_ipset(&self) -> bool {
        if let Some(configured) = self.config.affinity {
            return configured;
        }
        let listed = self.list_sets().await;
        if let Err(error) = &listed {
            warn!(%error, "No ipset here, so there is no session affinity");
        }
        listed.is_ok()
    }

    /// Whether a part of the kernel is missing without which `want` cannot be written.
    pub(super) async fn find_lacking(&mut self, want: &Rendered) {
        let suspects = self
            .families
            .iter()
            .flat_map(|&family| lacking::suspects(want.family(family)))
            .collect();
        // All sets have been created before, so if one more cannot be, that is not why.
        self.examine(suspects, true).await;
    }

    /// The same where sets cannot be created, for this reason.
    pub(super) async fn find_lacking_sets(&mut self, have: &Rendered, error: &CommandError) {
        // Those that are there show that the kernel knows them, so it is something else, and
        // they must not be lost for that.
        let mut families = self.families.iter();
        let known = families.any(|&family| !have.family(family).sets.is_empty());
        if error.is_refusal() && !known {
            self.examine(BTreeSet::from([Module::Sets]), false).await;
        }
    }

    /// `have_sets`: whether it is known that sets can be created.
    async fn examine(&mut self, suspects: BTreeSet<Module>, have_sets: bool) {
        // If nothing can be written, that is not for lack of a module.
        if suspects.is_empty() || self.takes(lacking::control()).await != Some(true) {
            return;
        }
        for module in suspects {
            let mut told = self.has(module, have_sets).await;
            if told == Some(false) {
                // What passes is not to cost anybody a Service.
                sleep(DOUBT).await;
                told = self.has(module, have_sets).await;
            }
            let Some(there) = told else {
                continue;
            };
            // Nor if the next is not taken either: whatever it was may have come in between.
            if !there && self.takes(lacking::control()).await != Some(true) {
                return;
            }
            if self.lacking.found(module, there, self.config.module_retry) {
                let (module, cost) = (module.name(), module.cost());
                error!(module, "The kernel lacks a module, {cost}");
            }
        }
    }

    /// What was missing may have been loaded.
    pub(super) async fn look_for_lacking(&mut self) {
        for module in self.lacking.overdue() {
            // What cannot be told has not changed, and is to be looked for again like the rest.
            let there = self.has(module, false).await.unwrap_or(false);
            if self.lacking.found(module, there, self.config.module_retry) {
                let module = module.name();
                info!(module, "The kernel has a module that it lacked");
                self.watch.alarm();
            }
        }
    }

    /// Nothing if that cannot be told.
    async fn has(&mut self, module: Module, have_sets: bool) -> Option<bool> {
        if module != Module::Sets {
            return self.takes(module.probe()).await;
        }
        if let Err(error) = self.create_probe().await {
            debug!(%error, "A set to try out was not created");
            return (error.is_refusal() && !have_sets).then_some(false);
        }
        let there = self.takes(module.probe()).await;
        self.destroy_probe().await;
        there
    }

    /// Whether a probe's rule is accepted; nothing if nobody has said that it is not.
    async fn takes(&mut self, probe: [String; 2]) -> Option<bool> {
        self.watch.before_write(false);
        let tried = self.try_out(Family::V4, probe).await;
        // What is left of it makes the watch have everything read back, and so removed.
        let transactions = if matches!(tried, Ok(true)) { 2 } else { 0 };
        self.watch.after_write(transactions, None).await;
        match tried {
            Ok(_) => Some(true),
            Err(error) if self.waited_in_vain(&error) => None,
            Err(error) => error.is_refusal().then_some(false),
        }
    }

    /// Whether the rule was removed again, if it was written.
    async fn try_out(
        &self,
        family: Family,
        [write, remove]: [String; 2],
    ) -> Result<bool, CommandError> {
        let program = self.flavour.commands(&self.config).restore(family);
        let run = async |text: &str| {
            let args = ["--noflush", "--wait=5"];
            command::run(program, &args, text, self.config.timeout).await
        };
        if let Err(error) = run(&write).await {
            debug!(%error, write, "A probe was refused");
            return Err(error);
        }
        let removed = run(&remove).await;
        if let Err(error) = &removed {
            warn!(%family, %error, "Cannot remove a probe, the next read-back finds it");
        }
        Ok(removed.is_ok())
    }
}

impl Iptables {
    /// Whether a program cannot be run here, or has said that it does not work here. All else,
    /// such as that it took too long, or was killed, may pass.
    pub(super) fn is_not_here(&self, error: &CommandError) -> bool {
        match error {
            CommandError::Start { source, .. } => {
                error.is_missing() || source.kind() == ErrorKind::PermissionDenied
            }
            CommandError::Failed { status, .. } => {
                status.code().is_some() && !self.waited_in_vain(error)
            }
            _ => false,
        }
    }
}
