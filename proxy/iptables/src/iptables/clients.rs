//! Sets of the clients that come back to an endpoint.

use std::time::Duration;

use seaway_proxy_core::desired::Family;
use tracing::{debug, info, warn};

use super::Iptables;
use crate::command::{self, CommandError};
use crate::rendered::Rendered;
use crate::sets::{self, Sets};

/// How often a set is tried to be destroyed.
const DESTROY_ATTEMPTS: u32 = 10;
/// Pause between two attempts: longer than the kernel's RCU grace period, which
/// it takes to free a rule.
const DESTROY_PAUSE: Duration = Duration::from_millis(50);

impl Iptables {
    pub(super) async fn list_sets(&self) -> Result<String, CommandError> {
        let args = ["list", "-terse", "-output", "save"];
        command::run(&self.config.ipset, &args, "", self.config.timeout).await
    }

    /// Before the rules that look into them.
    pub(super) async fn create_sets(
        &self,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), CommandError> {
        let mut script = String::new();
        for &family in self.families {
            let (have, want) = (&have.family(family).sets, &want.family(family).sets);
            script += &sets::creation(have, want, family);
        }
        if script.is_empty() {
            return Ok(());
        }
        self.restore_sets(&script).await
    }

    /// As one of a Service is made, for a rule to look into.
    pub(super) async fn create_probe(&self) -> Result<(), CommandError> {
        let want = Sets::from([(sets::PROBE.to_owned(), 1)]);
        let script = sets::creation(&Sets::new(), &want, Family::V4);
        self.restore_sets(&script).await
    }

    /// After that rule is gone. What is left is ours by its name, and goes later.
    pub(super) async fn destroy_probe(&mut self) {
        if let Err(error) = self.destroy(vec![sets::PROBE.to_owned()]).await {
            debug!(%error, "Cannot destroy the set that was to be tried out yet");
        }
    }

    /// One that cannot be replaced, such as one of another kind, serves on as it is: it must
    /// not keep rules from being written.
    pub(super) async fn replace_sets(&mut self, have: &Rendered, want: &Rendered) {
        let mut all = Vec::new();
        for &family in self.families {
            let (have, want) = (&have.family(family).sets, &want.family(family).sets);
            all.extend(sets::replacements(have, want, family));
        }
        for replacement in all {
            let mut replaced = self.restore_sets(&replacement.script).await;
            if replaced.is_err() {
                // An earlier attempt's may be in the way.
                self.destroy_spare(&replacement.spare).await;
                replaced = self.restore_sets(&replacement.script).await;
            }
            let Err(error) = replaced else { continue };
            warn!(%error, "Cannot replace a set of clients that somebody else has changed");
            self.destroy_spare(&replacement.spare).await;
            // Others pass, and the next reading finds the set again.
            if error.is_refusal() {
                self.stuck.altered(replacement);
            }
        }
    }

    async fn restore_sets(&self, script: &str) -> Result<(), CommandError> {
        let args = ["restore", "-exist"];
        let run = command::run(&self.config.ipset, &args, script, self.config.timeout);
        run.await.map(|_| ())
    }

    async fn destroy_set(&self, name: &str) -> Result<(), CommandError> {
        let words = ["destroy", name];
        let run = command::run(&self.config.ipset, &words, "", self.config.timeout);
        run.await.map(|_| ())
    }

    /// It may not have come into being.
    async fn destroy_spare(&self, spare: &str) {
        if let Err(error) = self.destroy_set(spare).await {
            debug!(%error, spare, "Cannot destroy the set that should have replaced another");
        }
    }

    /// After the rules that looked into them are gone. The kernel lets go of a
    /// rule some time after it is removed, so this may have to wait a little.
    /// All are tried, and those that somebody else uses are remembered; the first failure is
    /// returned.
    pub(super) async fn destroy_sets(
        &mut self,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), CommandError> {
        let mut left: Vec<String> = Vec::new();
        for &family in self.families {
            let (have, want) = (&have.family(family).sets, &want.family(family).sets);
            left.extend(sets::superfluous(have, want).cloned());
        }
        let mut strangers = left.clone();
        strangers.retain(|name| sets::is_stranger(name));
        let outcome = self.destroy(left).await;
        strangers.retain(|name| !self.stuck.sets.contains(name));
        if !strangers.is_empty()
            && outcome
                .as_ref()
                .map_or_else(CommandError::is_refusal, |()| true)
        {
            let first = command::first_names(strangers.iter().map(String::as_str));
            info!(
                sets = strangers.len(),
                first, "Removed sets of another version"
            );
        }
        outcome
    }

    async fn destroy(&mut self, mut left: Vec<String>) -> Result<(), CommandError> {
        let (mut attempt, mut outcome) = (1, Ok(()));
        while !left.is_empty() {
            let lines = left.iter().map(|name| format!("destroy {name}\n"));
            let script: String = lines.collect();
            let Err(error) = self.restore_sets(&script).await else {
                break;
            };
            if !error.is_refusal() {
                return Err(error);
            }
            // What has been destroyed before the failure is not there any more.
            let dump = self.list_sets().await?;
            let there = sets::names(&dump);
            left.retain(|name| there.contains(name.as_str()));
            if attempt < DESTROY_ATTEMPTS {
                attempt += 1;
                tokio::time::sleep(DESTROY_PAUSE).await;
            } else if !left.is_empty() {
                // ipset has stopped at the first, and is not to stop there again.
                self.stuck.sets.insert(left.remove(0));
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }

    /// Once, without waiting: whoever used them may have let go.
    pub(super) async fn destroy_stuck(&mut self) {
        for name in self.stuck.sets.clone() {
            match self.destroy_set(&name).await {
                Ok(()) => {
                    info!(name, "Destroyed a set of clients that somebody had used");
                    self.stuck.sets.remove(&name);
                }
                Err(error) => debug!(%error, name, "Still cannot destroy a set of clients"),
            }
        }
        if !self.stuck.sets.is_empty()
            && let Ok(dump) = self.list_sets().await
        {
            // Somebody else may have destroyed one.
            let there = sets::names(&dump);
            self.stuck.sets.retain(|name| there.contains(name.as_str()));
        }
    }
}
