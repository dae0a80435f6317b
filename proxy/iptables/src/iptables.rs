//! The backend: commands around the pure part.

use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::DesiredState;
use tracing::{debug, error, info};

use crate::command::{self, CommandError};
use crate::config::Config;
use crate::flavour::{self, Flavour};
use crate::render;
use crate::rendered::Rendered;
use crate::save;

/// Lines of a failed transaction that are logged as an error.
const TRANSACTION_LINES: usize = 10;

/// Programs Services through iptables, in the network namespace of the thread
/// that polls its futures.
#[derive(Debug)]
pub struct Iptables {
    config: Config,
    flavour: Flavour,
    /// Whether the other flavour may still hold rules of an earlier run.
    check_other: bool,
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
        Ok(Self {
            config,
            flavour,
            check_other: true,
        })
    }

    /// The flavour in use.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    async fn read(&self, flavour: Flavour) -> Result<Rendered, CommandError> {
        let program = &flavour.commands(&self.config).save;
        // Without `-t`: a table that does not exist stays so.
        let dump = command::run(program, &[], "", self.config.timeout).await?;
        save::parse(&dump).map_err(|source| CommandError::Output {
            program: program.clone(),
            source,
        })
    }

    async fn write(
        &self,
        flavour: Flavour,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), CommandError> {
        let transaction = have.transaction_to(want);
        if transaction.is_empty() {
            return Ok(());
        }
        let program = &flavour.commands(&self.config).restore;
        // The lock's wait ends well before our own patience does.
        let wait = format!("--wait={}", (self.config.timeout.as_secs() / 4).max(1));
        let args = ["--noflush", wait.as_str()];
        let result = command::run(program, &args, &transaction, self.config.timeout).await;
        if result.is_err() {
            // Restore names a line number at best, so the lines are needed.
            let first = command::first_lines(&transaction, TRANSACTION_LINES, "\n");
            error!(%flavour, lines = transaction.lines().count(), first, "Transaction failed");
            debug!(%flavour, transaction, "Failed transaction");
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
        render::render(&self.config, desired)
    }

    async fn read_back(&mut self) -> Result<Rendered, BackendError> {
        let read = self.read(self.flavour).await;
        read.map_err(|e| failure(format!("read the {} rules", self.flavour), e))
    }

    async fn apply(&mut self, have: &Rendered, want: &Rendered) -> Result<(), BackendError> {
        let written = self.write(self.flavour, have, want).await;
        written.map_err(|e| failure(format!("write the {} rules", self.flavour), e))?;
        if self.check_other {
            let cleared = self.clear_other().await;
            cleared.map_err(|e| failure("remove leftover rules of the other flavour", e))?;
            self.check_other = false;
        }
        Ok(())
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        let have = self.read_back().await?;
        let cleared = self.clear(self.flavour, &have).await;
        cleared.map_err(|e| failure(format!("remove the {} rules", self.flavour), e))?;
        let cleared = self.clear_other().await;
        cleared.map_err(|e| failure("remove leftover rules of the other flavour", e))
    }
}
