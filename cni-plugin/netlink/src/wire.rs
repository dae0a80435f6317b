//! Netlink messages as bytes: sending, matching acknowledgements, dumps.
//!
//! Knows the netlink header and error format (RFC 3549, and the kernel's
//! Documentation/userspace-api/netlink), and nothing of any protocol above.

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::{Socket as RawSocket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::error::{NetlinkError, Reason};

mod datagram;
mod dump;
mod frame;
#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;

pub(crate) use datagram::{Body, split};
pub use frame::{Frame, Reply};

use datagram::Message;

/// An acknowledgement, or one object: a link without its virtual functions has 2 KiB.
/// Less than a list needs: every page that is touched costs a short-lived process.
const ONE_OBJECT: usize = 8 * 1024;
/// Kernel replies of a dump are at most this long
/// (`NLMSG_GOODSIZE` to 32 KiB, net/netlink/af_netlink.c `netlink_dump`).
const MANY_OBJECTS: usize = 64 * 1024;
/// Enough for any reply that is not lost. Requests themselves are carried out
/// inside `send`, so a held RTNL lock delays the send and not the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A netlink socket.
pub struct Wire {
    socket: RawSocket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("fd", &self.socket.as_raw_fd())
            .finish_non_exhaustive()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Wire {
    /// Opens a socket of a netlink protocol (`NETLINK_ROUTE`, ...) in the
    /// calling thread's network namespace.
    ///
    /// # Errors
    /// Those of `socket(2)` and its options.
    pub fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let failed = |error: std::io::Error| NetlinkError::io("open", "netlink socket", &error);
        let mut socket = RawSocket::new(protocol).map_err(failed)?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(failed)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
        socket.set_ext_ack(true).map_err(failed)?;
        socket.set_cap_ack(true).map_err(failed)?;
        if protocol == netlink_sys::protocols::NETLINK_ROUTE {
            // Absent before Linux 4.20, where filters are then ours alone.
            match socket.set_netlink_get_strict_chk(true) {
                Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        let timeout = TimeVal::new(REPLY_TIMEOUT.as_secs().cast_signed(), 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeout).map_err(|e| failed(e.into()))?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: vec![0; ONE_OBJECT],
        })
    }

    /// Makes room for lists and for what comes unasked.
    pub(crate) fn make_room(&mut self) {
        self.buffer.resize(MANY_OBJECTS, 0);
    }

    pub(crate) fn socket_mut(&mut self) -> &mut RawSocket {
        &mut self.socket
    }

    /// Sends all frames at once and waits for the acknowledgements of those
    /// that ask for one. Returns the objects that came in between.
    ///
    /// # Errors
    /// The first frame that failed. rtnetlink carries out the later ones all
    /// the same; nfnetlink batches are all or nothing.
    pub fn transact(&mut self, frames: &[Frame]) -> Result<Vec<Reply>, NetlinkError> {
        let Some(context) = frames.first() else {
            return Ok(Vec::new());
        };
        let first = self.send(frames)?;
        let mut pending = frames.iter().filter(|f| f.flags & NLM_F_ACK != 0).count();
        let mut failure: Option<(usize, Reason)> = None;
        let mut replies = Vec::new();
        while pending > 0 {
            for message in self.receive(context)? {
                // Replies to earlier, abandoned requests are skipped.
                let place = message.sequence.wrapping_sub(first) as usize;
                let Some(frame) = frames.get(place) else {
                    continue;
                };
                match message.body {
                    Body::Ack(Some(reason)) if frame.flags & NLM_F_ACK == 0 => {
                        // The begin of an nfnetlink batch: all of it is refused.
                        return Err(frame.error(reason));
                    }
                    Body::Ack(outcome) => {
                        pending -= usize::from(frame.flags & NLM_F_ACK != 0);
                        if let Some(reason) = outcome
                            && failure
                                .as_ref()
                                .is_none_or(|(earliest, _)| place < *earliest)
                        {
                            failure = Some((place, reason));
                        }
                    }
                    Body::Done(_) => {}
                    Body::Object(reply) => replies.push(reply),
                }
            }
        }
        match failure {
            Some((place, reason)) => Err(frames[place].error(reason)),
            None => Ok(replies),
        }
    }

    /// Sends all frames at once, of which rtnetlink acknowledges the last: it carries them out
    /// in order, and tells failures of the others as well.
    ///
    /// # Errors
    /// The first frame that failed. The later ones are carried out all the same.
    pub fn carry_out(&mut self, frames: &[Frame]) -> Result<(), NetlinkError> {
        let (Some(context), Some(last)) = (frames.first(), frames.len().checked_sub(1)) else {
            return Ok(());
        };
        let first = self.send(frames)?;
        let mut failure = None;
        loop {
            for message in self.receive(context)? {
                let place = message.sequence.wrapping_sub(first) as usize;
                let (Some(frame), Body::Ack(outcome)) = (frames.get(place), message.body) else {
                    continue;
                };
                failure = failure.or(outcome.map(|reason| frame.error(reason)));
                if place == last {
                    return failure.map_or(Ok(()), Err);
                }
            }
        }
    }

    /// Returns the sequence number of the first frame.
    fn send(&mut self, frames: &[Frame]) -> Result<u32, NetlinkError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for frame in frames {
            self.sequence = self.sequence.wrapping_add(1);
            frame.encode(self.sequence, &mut bytes)?;
        }
        let Some(context) = frames.first() else {
            return Ok(first);
        };
        loop {
            match self.socket.send(&bytes, 0) {
                Ok(_) => return Ok(first),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(NetlinkError::io(context.op, &context.object, &error)),
            }
        }
    }

    pub(crate) fn receive(&mut self, context: &Frame) -> Result<Vec<Message>, NetlinkError> {
        let length = loop {
            let mut slices = [IoSliceMut::new(&mut self.buffer)];
            let received = recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut slices,
                None,
                MsgFlags::MSG_TRUNC,
            );
            match received {
                Ok(message) => break message.bytes,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Err(context.error(Reason::Timeout(REPLY_TIMEOUT))),
                Err(errno) => {
                    return Err(NetlinkError::refused(
                        context.op,
                        &context.object,
                        errno as i32,
                    ));
                }
            }
        };
        let bytes = self.buffer.get(..length).ok_or_else(|| {
            let what = format!("{length} bytes in one datagram");
            NetlinkError::malformed(context.op, &context.object, &what)
        })?;
        split(bytes).map_err(|what| NetlinkError::malformed(context.op, &context.object, &what))
    }
}
