//! Sets of the clients that come back to an endpoint.

use std::time::Duration;

use super::Iptables;
use crate::command::{self, CommandError};
use crate::rendered::Rendered;
use crate::sets;

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
        let ipset = &self.config.ipset;
        let created = command::run(ipset, &["restore", "-exist"], &script, self.config.timeout);
        created.await.map(|_| ())
    }

    /// After the rules that looked into them are gone. The kernel lets go of a
    /// rule some time after it is removed, so this may have to wait a little.
    pub(super) async fn destroy_sets(
        &self,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), CommandError> {
        for &family in self.families {
            let (have, want) = (&have.family(family).sets, &want.family(family).sets);
            let mut left: Vec<&String> = sets::superfluous(have, want).collect();
            for attempt in 1..=DESTROY_ATTEMPTS {
                let lines: Vec<String> = left
                    .iter()
                    .map(|name| format!("destroy {name}\n"))
                    .collect();
                if lines.is_empty() {
                    break;
                }
                let ipset = &self.config.ipset;
                let script = lines.concat();
                let run = command::run(ipset, &["restore", "-exist"], &script, self.config.timeout);
                match run.await {
                    Ok(_) => break,
                    Err(error) if attempt == DESTROY_ATTEMPTS => return Err(error),
                    Err(_) => tokio::time::sleep(DESTROY_PAUSE).await,
                }
                // What has been destroyed before the failure is not there any more.
                let dump = self.list_sets().await?;
                let there = sets::parse(&dump, family);
                left.retain(|name| there.contains_key(*name));
            }
        }
        Ok(())
    }
}
