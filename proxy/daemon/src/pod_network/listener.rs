//! Hears of changes that others make.

use std::future::pending;
use std::io;

use seaway_podnet::{Notices, Watched};
use tokio::io::unix::AsyncFd;
use tracing::warn;

use super::registered;
use crate::chain::Chain;

/// A socket for the kernel's notices, opened again when it breaks.
#[derive(Debug, Default)]
pub(super) struct Listener {
    notices: Option<AsyncFd<Notices>>,
    /// Whether the present trouble has been told.
    told: bool,
}

impl Listener {
    /// Makes sure that what happens from now on is heard. Without it the resync
    /// remains, so failure is a warning.
    pub(super) fn listen(&mut self) {
        if self.notices.is_some() {
            return;
        }
        let opened = Notices::open()
            .map_err(io::Error::other)
            .and_then(registered);
        match opened {
            Ok(notices) => (self.notices, self.told) = (Some(notices), false),
            Err(error) => self.broken(&error),
        }
    }

    /// Returns when something has changed that `watched` stands on.
    pub(super) async fn concerned(&mut self, watched: &Watched) {
        let Some(notices) = &mut self.notices else {
            return pending().await;
        };
        let error = loop {
            let inner = notices.get_mut();
            match inner.follow(watched) {
                Ok(false) => {}
                // What has come until now, the last round's own work among it, is covered by
                // the round that follows.
                Ok(true) => match inner.take(watched) {
                    Ok(_) => return,
                    Err(error) => break io::Error::other(error),
                },
                Err(error) => break io::Error::other(error),
            }
            let mut ready = match notices.readable_mut().await {
                Ok(ready) => ready,
                Err(error) => break error,
            };
            let taken = ready.get_inner_mut().take(watched);
            // All was taken, and what came meanwhile makes it ready again.
            ready.clear_ready();
            match taken {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => break io::Error::other(error),
            }
        };
        self.notices = None;
        self.broken(&error);
    }

    fn broken(&mut self, error: &io::Error) {
        if !self.told {
            warn!(error = %Chain(error), "Cannot hear of changes to links and routes, looking every 30 s");
            self.told = true;
        }
    }
}
