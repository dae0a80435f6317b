//! Waits for what the kernel does in a job of its own after it has said yes.

use std::time::{Duration, Instant};

use nix::poll::ppoll;
use nix::sys::time::{TimeSpec, TimeValLike as _};
use seaway_netlink::{NetlinkError, Socket};

use super::netlink;
use crate::error::Error;
use crate::plan::Indexes;

/// The longest delay of the kernel's job.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kernel's job takes about as long where nothing is in its way. The
/// pauses double, so that a busy machine is not kept busy by looks.
const FIRST_PAUSE_US: i64 = 50;
const LONGEST_PAUSE_US: i64 = 2000;

/// Waits until the first packet in either direction will not be lost.
pub(super) fn await_ready(host: &mut Socket, indexes: Indexes) -> Result<(), Error> {
    await_it("carrier", || carrier(host, indexes))
}

/// The end that is brought up first has no carrier then, and gets its queues
/// in a deferred job when the other end follows: a packet sent before is lost,
/// and with it a second of a new connection. In newer kernels, asking for the
/// link runs that job at once (`linkwatch_sync_dev` in `rtnl_getlink`; seen
/// with 6.18); in older ones it is waited for.
fn carrier(host: &mut Socket, indexes: Indexes) -> Result<bool, Error> {
    let link = host
        .link_by_index(indexes.host)
        .map_err(netlink("look at the host's interface"))?;
    Ok(link.operational)
}

fn await_it(
    what: &'static str,
    mut is_there: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE_US);
    while start.elapsed() < PATIENCE {
        if is_there()? {
            return Ok(());
        }
        // Nothing to wait for but the time.
        if let Err(errno) = ppoll(&mut [], Some(TimeSpec::microseconds(pause)), None) {
            let error = NetlinkError::refused("wait for the", what, errno as i32);
            return Err(netlink("wait for the kernel")(error));
        }
        pause = LONGEST_PAUSE_US.min(2 * pause);
    }
    // TCP gets over it.
    eprintln!("No {what} yet");
    Ok(())
}
