//! Takes everything of ours away.

use seaway_proxy_core::backend::{Backend as _, BackendError, Retry};
use seaway_proxy_core::desired::DesiredState;
use tracing::{debug, info, warn};

use super::{Iptables, failure};
use crate::command::{self, CommandError};
use crate::flavour::Flavour;
use crate::localhost::Localhost;
use crate::rendered::Rendered;

impl Iptables {
    /// Removes what an earlier run left in the flavour that is not in use. One
    /// that is not installed, or not in the kernel, has nothing of ours.
    pub(super) async fn clear_other(&self) -> Result<bool, CommandError> {
        let flavour = self.flavour.other();
        let program = &flavour.commands(&self.config).restore;
        let read = match command::is_installed(program, self.config.timeout).await {
            Ok(()) => self.read(flavour, false).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(have) => self.clear(flavour, &have).await,
            Err(error) => {
                debug!(%flavour, %error, "No leftovers, this flavour does not work here");
                Ok(false)
            }
        }
    }

    /// Where nothing has been written since the start, or the other flavour could not be
    /// cleared after it.
    pub(super) async fn clear_other_at_last(&mut self) {
        if !self.check_other || self.behind {
            return;
        }
        match self.clear_other().await {
            Ok(_any) => self.check_other = false,
            Err(error) => {
                if std::mem::replace(&mut self.told_other, true) {
                    debug!(%error, "Still cannot remove leftover rules of the other flavour");
                } else {
                    warn!(%error, "Cannot remove leftover rules of the other flavour, trying again");
                }
                self.watch.alarm();
            }
        }
    }

    /// After the rules that keep strangers from the loopback addresses are there. Not with
    /// their writing: who has written them may have died before this.
    pub(super) fn open_localhost(&self, desired: &DesiredState) {
        if desired.v4.node_ports.localhost && !self.behind {
            Localhost::new(&self.config.run_dir).open();
        }
    }

    pub(super) fn close_localhost(&self) -> Result<bool, BackendError> {
        let closed = Localhost::new(&self.config.run_dir).close();
        closed.map_err(|error| {
            BackendError::new("set back net.ipv4.conf.all.route_localnet", Retry::Backoff)
                .because(error)
        })
    }

    /// Tells whether there was anything.
    pub(super) async fn clear(
        &self,
        flavour: Flavour,
        have: &Rendered,
    ) -> Result<bool, CommandError> {
        if have.is_empty() {
            return Ok(false);
        }
        let written = self.write(flavour, have, &Rendered::default()).await;
        if let Some(failed) = written.failed {
            return Err(failed.error);
        }
        info!(%flavour, "Removed our rules");
        Ok(true)
    }

    /// Removes everything of ours, of both flavours; tells whether there was anything.
    ///
    /// # Errors
    /// Something could not be looked for or removed; the rest may still be there.
    pub async fn remove_everything(&mut self) -> Result<bool, BackendError> {
        let mut any = self.close_localhost()?;
        let have = self.read_back().await?;
        let cleared = self.clear(self.flavour, &have).await;
        any |= cleared.map_err(|e| failure(format!("remove the {} rules", self.flavour), e))?;
        let cleared = self.clear_other().await;
        any |= cleared.map_err(|e| failure("remove leftover rules of the other flavour", e))?;
        let destroyed = self.destroy_sets(&have, &Rendered::default()).await;
        destroyed.map_err(|e| failure("destroy sets of clients", e))?;
        Ok(any)
    }
}
