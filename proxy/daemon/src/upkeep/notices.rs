//! nftables' notifications, as something to wait for.

use seaway_firewall::{FirewallError, Noticed, Watch};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

use crate::chain::Chain;

/// Notifications; none while the kernel has none to give.
#[derive(Debug, Default)]
pub(super) struct Notices {
    watch: Option<AsyncFd<Watch>>,
    /// Whether the present trouble has been told.
    told: bool,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
enum NoNotices {
    #[error("open the watch")]
    Open(#[source] FirewallError),
    #[error("wait for the watch")]
    Wait(#[source] std::io::Error),
}

impl Notices {
    /// In the calling thread's network namespace.
    pub(super) fn open() -> Self {
        let mut notices = Self::default();
        notices.listen();
        notices
    }

    /// Opens it again if it broke. A look finds what has happened meanwhile.
    pub(super) fn listen(&mut self) {
        if self.watch.is_some() {
            return;
        }
        let opened = Watch::open()
            .map_err(NoNotices::Open)
            .and_then(|watch| register(watch).map_err(NoNotices::Wait));
        match opened {
            Ok(watch) => (self.watch, self.told) = (Some(watch), false),
            Err(error) => self.failed(&error),
        }
    }

    /// Waits for one about tables that we depend on; tells whether something of ours was
    /// removed.
    pub(super) async fn next(&mut self) -> bool {
        while let Some(watch) = &mut self.watch {
            match take(watch).await {
                Ok(noticed) if noticed.changed => return noticed.removed,
                Ok(_) => {}
                Err(error) => self.failed(&error),
            }
        }
        std::future::pending().await
    }

    /// Takes those that have come by now, since the look that follows covers them; tells the
    /// same.
    pub(super) fn clear(&mut self) -> bool {
        match self.watch.as_mut().map(|watch| watch.get_mut().take()) {
            Some(Ok(noticed)) => noticed.removed,
            Some(Err(error)) => {
                self.failed(&NoNotices::Open(error));
                false
            }
            None => false,
        }
    }

    fn failed(&mut self, error: &NoNotices) {
        self.watch = None;
        if !std::mem::replace(&mut self.told, true) {
            warn!(error = %Chain(error), "Cannot listen to changes of the firewall, looking now and then");
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor wants unsafe; the watch opens one descriptor and keeps it"
)]
fn register(watch: Watch) -> std::io::Result<AsyncFd<Watch>> {
    AsyncFd::with_interest(watch, Interest::READABLE)
}

async fn take(watch: &mut AsyncFd<Watch>) -> Result<Noticed, NoNotices> {
    let mut ready = watch.readable_mut().await.map_err(NoNotices::Wait)?;
    let taken = ready.get_inner_mut().take();
    // All of it has been taken.
    ready.clear_ready();
    taken.map_err(NoNotices::Open)
}
