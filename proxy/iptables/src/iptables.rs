//! The backend: commands around the pure part.

use std::time::Duration;

use seaway_proxy_core::backend::{Backend, BackendError, Retry};
use seaway_proxy_core::desired::{DesiredState, Family};
use seaway_proxy_core::skipped::Skipped;
use tracing::{debug, error, info, warn};

use crate::command::{self, CommandError};
use crate::config::Config;
use crate::conntrack::Conntrack;
use crate::flavour::{self, Flavour};
use crate::localhost::Localhost;
use crate::render;
use crate::rendered::{LOCALHOST, Rendered, Tables};
use crate::save;
use crate::sets;
use crate::unsupported;

/// Lines of a failed transaction that are logged as an error.
const TRANSACTION_LINES: usize = 10;

/// How often a set is tried to be destroyed.
const DESTROY_ATTEMPTS: u32 = 10;
/// Pause between two attempts: longer than the kernel's RCU grace period, which
/// it takes to free a rule.
const DESTROY_PAUSE: Duration = Duration::from_millis(50);

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
    conntrack: Conntrack,
}

impl Iptables {
    /// Finds out, unless configured, which flavour this node uses.
    ///
    /// # Errors
    /// iptables is not installed or does not work.
    pub async fn new(config: Config) -> Result<Self, BackendError> {
        let flavour = match config.flavour {
            Some(flavour) => flavour,
            None => flavour::detect(&config)
                .await
                .map_err(|e| failure("find the iptables flavour of this node", e))?,
        };
        let mut new = Self {
            config,
            flavour,
            families: &Family::ALL,
            affinity: true,
            check_other: true,
            conntrack: Conntrack::default(),
        };
        if !new.has_ipv6().await {
            new.families = &[Family::V4];
        }
        new.affinity = new.has_ipset().await;
        Ok(new)
    }

    async fn has_ipv6(&self) -> bool {
        if let Some(configured) = self.config.ipv6 {
            return configured;
        }
        let read = self.read_family(self.flavour, Family::V6).await;
        if let Err(error) = &read {
            info!(%error, "No ip6tables here, so IPv6 is not served");
        }
        read.is_ok()
    }

    /// The flavour in use.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    async fn has_ipset(&self) -> bool {
        if let Some(configured) = self.config.affinity {
            return configured;
        }
        let listed = self.list_sets().await;
        if let Err(error) = &listed {
            warn!(%error, "No ipset here, so there is no session affinity");
        }
        listed.is_ok()
    }

    async fn list_sets(&self) -> Result<String, CommandError> {
        let args = ["list", "-terse", "-output", "save"];
        command::run(&self.config.ipset, &args, "", self.config.timeout).await
    }

    /// Before the rules that look into them.
    async fn create_sets(&self, have: &Rendered, want: &Rendered) -> Result<(), CommandError> {
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
    async fn destroy_sets(&self, have: &Rendered, want: &Rendered) -> Result<(), CommandError> {
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

    async fn read_family(&self, flavour: Flavour, family: Family) -> Result<Tables, CommandError> {
        let program = flavour.commands(&self.config).save(family);
        // Without `-t`: a table that does not exist stays so.
        let dump = command::run(program, &[], "", self.config.timeout).await?;
        save::parse(&dump).map_err(|source| CommandError::Output {
            program: program.to_owned(),
            source,
        })
    }

    async fn read(&self, flavour: Flavour) -> Result<Rendered, CommandError> {
        let mut rendered = Rendered::default();
        for &family in self.families {
            *rendered.family_mut(family) = self.read_family(flavour, family).await?;
        }
        Ok(rendered)
    }

    /// A failure in one family does not keep the other one from being written.
    async fn write(
        &self,
        flavour: Flavour,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), CommandError> {
        let mut result = Ok(());
        for &family in self.families {
            let transaction = have.family(family).transaction_to(want.family(family));
            let written = self.restore(flavour, family, &transaction).await;
            result = result.and(written);
        }
        result
    }

    async fn restore(
        &self,
        flavour: Flavour,
        family: Family,
        transaction: &str,
    ) -> Result<(), CommandError> {
        if transaction.is_empty() {
            return Ok(());
        }
        let program = flavour.commands(&self.config).restore(family);
        // The lock's wait ends well before our own patience does.
        let wait = format!("--wait={}", (self.config.timeout.as_secs() / 4).max(1));
        let args = ["--noflush", wait.as_str()];
        let result = command::run(program, &args, transaction, self.config.timeout).await;
        if result.is_err() {
            // Restore names a line number at best, so the lines are needed.
            let first = command::first_lines(transaction, TRANSACTION_LINES, "\n");
            error!(%flavour, %family, lines = transaction.lines().count(), first, "Transaction failed");
            debug!(%flavour, %family, transaction, "Failed transaction");
        }
        result.map(|_| ())
    }

    /// Removes what an earlier run left in the flavour that is not in use. One
    /// that is not installed, or not in the kernel, has nothing of ours.
    async fn clear_other(&self) -> Result<(), CommandError> {
        let flavour = self.flavour.other();
        match self.read(flavour).await {
            Ok(have) => self.clear(flavour, &have).await,
            Err(error) => {
                debug!(%flavour, %error, "No leftovers, this flavour does not work here");
                Ok(())
            }
        }
    }

    fn close_localhost(&self) -> Result<(), BackendError> {
        let closed = Localhost::new(&self.config.run_dir).close();
        closed.map_err(|error| {
            BackendError::new("set back net.ipv4.conf.all.route_localnet", Retry::Backoff)
                .because(error)
        })
    }

    async fn clear(&self, flavour: Flavour, have: &Rendered) -> Result<(), CommandError> {
        if have.is_empty() {
            return Ok(());
        }
        self.write(flavour, have, &Rendered::default()).await?;
        info!(%flavour, "Removed our rules");
        Ok(())
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

    fn render(&self, desired: &DesiredState) -> Rendered {
        let mut rendered = Rendered::default();
        for &family in self.families {
            *rendered.family_mut(family) =
                render::render(&self.config, self.affinity, family, desired.family(family));
        }
        rendered
    }

    fn unsupported(&self, desired: &DesiredState) -> Vec<Skipped> {
        unsupported::of(desired, self.families, self.affinity)
    }

    async fn read_back(&mut self) -> Result<Rendered, BackendError> {
        let read = self.read(self.flavour).await;
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

    async fn apply(&mut self, have: &Rendered, want: &Rendered) -> Result<(), BackendError> {
        let created = self.create_sets(have, want).await;
        created.map_err(|e| failure("create sets of clients", e))?;
        let localhost = want.v4.filter.chains.contains_key(LOCALHOST);
        if !localhost {
            // Before the rules go that keep strangers from the loopback addresses.
            self.close_localhost()?;
        }
        let written = self.write(self.flavour, have, want).await;
        written.map_err(|e| failure(format!("write the {} rules", self.flavour), e))?;
        if localhost {
            Localhost::new(&self.config.run_dir).open();
        }
        if self.check_other {
            let cleared = self.clear_other().await;
            cleared.map_err(|e| failure("remove leftover rules of the other flavour", e))?;
            self.check_other = false;
        }
        let destroyed = self.destroy_sets(have, want).await;
        destroyed.map_err(|e| failure("destroy sets of clients", e))
    }

    async fn settle(&mut self, desired: &DesiredState) {
        self.conntrack.settle(self.families, desired).await;
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        self.close_localhost()?;
        let have = self.read_back().await?;
        let cleared = self.clear(self.flavour, &have).await;
        cleared.map_err(|e| failure(format!("remove the {} rules", self.flavour), e))?;
        let cleared = self.clear_other().await;
        cleared.map_err(|e| failure("remove leftover rules of the other flavour", e))?;
        let destroyed = self.destroy_sets(&have, &Rendered::default()).await;
        destroyed.map_err(|e| failure("destroy sets of clients", e))
    }
}
