//! Takes everything of ours away.

use seaway_proxy_core::backend::{Backend as _, BackendError, Retry};
use seaway_proxy_core::desired::DesiredState;
use tracing::{debug, info, warn};

use super::{Iptables, failure};
use crate::command::{self, CommandError};
use crate::flavour::Flavour;
use crate::rendered::{LOCALHOST, Rendered};

#[cfg(test)]
mod tests;

impl Iptables {
    /// Removes what an earlier run left in the flavour that is not in use. One
    /// that is not installed, or not in the kernel, has nothing of ours.
    /// `guarded` as in [`clear`](Self::clear).
    async fn clear_other(&self, guarded: bool) -> Result<bool, CommandError> {
        let flavour = self.flavour.other();
        let program = &flavour.commands(&self.config).restore;
        let read = match command::is_installed(program, self.config.timeout).await {
            Ok(()) => self.read(flavour, false).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(have) => self.clear(flavour, &have, guarded).await,
            Err(error) if self.is_not_here(&error) => {
                debug!(%flavour, %error, "No leftovers, this flavour does not work here");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Where nothing has been written since the start, or the other flavour could not be
    /// cleared after it.
    pub(super) async fn clear_other_at_last(&mut self) {
        if !self.check_other || self.behind {
            return;
        }
        match self.clear_other(false).await {
            Ok(_any) => self.check_other = false,
            // Each round would take as long again.
            Err(error @ CommandError::Timeout { .. }) if self.told_other => {
                warn!(%error, "Cannot look for leftover rules of the other flavour before the next start");
                self.check_other = false;
            }
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
    pub(super) fn open_localhost(&mut self, desired: &DesiredState) {
        if desired.v4.node_ports.localhost && !self.behind {
            self.localhost.open();
        }
    }

    /// Before the rules go that keep strangers from the loopback addresses.
    ///
    /// # Errors
    /// Those have to stay.
    pub(super) fn close_localhost(&self) -> Result<bool, BackendError> {
        self.localhost.close().map_err(|error| {
            BackendError::new("set back net.ipv4.conf.all.route_localnet", Retry::Backoff)
                .because(error)
        })
    }

    /// Tells whether there was anything. `guarded`: except for what keeps strangers from the
    /// loopback addresses.
    async fn clear(
        &self,
        flavour: Flavour,
        have: &Rendered,
        guarded: bool,
    ) -> Result<bool, CommandError> {
        let left = if guarded {
            guard(have)
        } else {
            Rendered::default()
        };
        if *have == left {
            return Ok(false);
        }
        let written = self.write(flavour, have, &left).await;
        if let Some(failed) = written.failed {
            return Err(failed.error);
        }
        info!(%flavour, "Removed our rules");
        Ok(true)
    }

    /// Removes everything of ours, of both flavours; tells whether there was anything.
    ///
    /// # Errors
    /// The first of what could not be looked for or removed; the rest is removed all the same,
    /// unless it is of use to what is left.
    pub async fn remove_everything(&mut self) -> Result<bool, BackendError> {
        let closed = self.close_localhost();
        let cleared = self.clear_both(closed.is_err()).await;
        let mut destroyed = Ok(());
        // Rules that are left may look into sets.
        if let Ok((_any, have)) = &cleared {
            destroyed = self.destroy_sets(have, &Rendered::default()).await;
            if let Err(error) = self.conntrack.forget() {
                warn!(%error, "Cannot remove what is remembered of Services of UDP and SCTP");
            }
        }
        let (closed, (cleared, _have)) = (closed?, cleared?);
        destroyed.map_err(|e| failure("destroy sets of clients", e))?;
        Ok(closed || cleared)
    }

    /// Both are tried. Tells whether there was anything, and what there was in the flavour that
    /// is in use.
    async fn clear_both(&mut self, guarded: bool) -> Result<(bool, Rendered), BackendError> {
        let own = self.clear_own(guarded).await;
        let other = self.clear_other(guarded).await;
        let (any, have) = own?;
        let more = other.map_err(|e| failure("remove leftover rules of the other flavour", e))?;
        Ok((any || more, have))
    }

    async fn clear_own(&mut self, guarded: bool) -> Result<(bool, Rendered), BackendError> {
        let have = self.read_back().await?;
        let cleared = self.clear(self.flavour, &have, guarded).await;
        let any = cleared.map_err(|e| failure(format!("remove the {} rules", self.flavour), e))?;
        Ok((any, have))
    }
}

/// Of our rules, those that keep strangers from the loopback addresses.
fn guard(have: &Rendered) -> Rendered {
    let (have, mut guard) = (&have.v4.filter, Rendered::default());
    if let Some((chain, body)) = have.chains.get_key_value(LOCALHOST) {
        let filter = &mut guard.v4.filter;
        filter.chains.insert(chain.clone(), body.clone());
        let leads = |rule: &str| rule.rsplit(' ').next() == Some(LOCALHOST);
        let jumps = have.jumps.iter().filter(|(_, rule)| leads(rule));
        filter.jumps = jumps.cloned().collect();
    }
    guard
}
