//! Netlink messages as bytes: sending, matching acknowledgements, dumps.
//!
//! Knows the netlink header and error format (RFC 3549, and the kernel's
//! Documentation/userspace-api/netlink), and nothing of any protocol above.

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP,
    NlasIterator,
};
use netlink_sys::{Socket as RawSocket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::error::{NetlinkError, Reason};

/// An acknowledgement, or one object: a link without its virtual functions has 2 KiB.
/// Less than a list needs: every page that is touched costs a short-lived process.
const ONE_OBJECT: usize = 8 * 1024;
/// Kernel replies of a dump are at most this long
/// (`NLMSG_GOODSIZE` to 32 KiB, net/netlink/af_netlink.c `netlink_dump`).
const MANY_OBJECTS: usize = 64 * 1024;
/// Enough for any reply that is not lost. Requests themselves are carried out
/// inside `send`, so a held RTNL lock delays the send and not the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// The CNI project's number, pkg/netlinksafe.
const DUMP_ATTEMPTS: u32 = 5;
/// `NLM_F_CAPPED` and `NLM_F_ACK_TLVS`, include/uapi/linux/netlink.h.
const F_CAPPED: u16 = 0x100;
const F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`, include/uapi/linux/netlink.h.
const ATTR_MSG: u16 = 1;
const HEADER: usize = 16;

/// One message to the kernel.
#[derive(Debug, Clone)]
pub struct Frame {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags` besides `NLM_F_REQUEST`. Whether an acknowledgement is
    /// awaited follows from `NLM_F_ACK`.
    pub flags: u16,
    /// Everything after the netlink header.
    pub payload: Vec<u8>,
    /// Operation, for errors.
    pub op: &'static str,
    /// Its object, for errors.
    pub object: String,
}

/// One message from the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// `nlmsg_type`.
    pub kind: u16,
    /// Everything after the netlink header.
    pub payload: Vec<u8>,
}

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

    /// Lists objects; a list that changed while it was read is read again.
    ///
    /// # Errors
    /// The kernel's, or [`Reason::DumpInterrupted`] after five attempts.
    pub fn dump(&mut self, frame: &Frame) -> Result<Vec<Reply>, NetlinkError> {
        self.dump_some(frame, Some)
    }

    /// Lists what `pick` makes of objects; a long list takes no more memory than
    /// what is picked.
    ///
    /// # Errors
    /// As [`dump`](Self::dump).
    pub fn dump_some<T>(
        &mut self,
        frame: &Frame,
        mut pick: impl FnMut(Reply) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut request = frame.clone();
        request.flags |= NLM_F_DUMP;
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(replies) = self.dump_once(&request, &mut pick)? {
                return Ok(replies);
            }
        }
        Err(frame.error(Reason::DumpInterrupted(DUMP_ATTEMPTS)))
    }

    /// `None`: interrupted (`NLM_F_DUMP_INTR`).
    fn dump_once<T>(
        &mut self,
        frame: &Frame,
        pick: &mut impl FnMut(Reply) -> Option<T>,
    ) -> Result<Option<Vec<T>>, NetlinkError> {
        self.make_room();
        let sequence = self.send(std::slice::from_ref(frame))?;
        let mut replies = Vec::new();
        let mut interrupted = false;
        loop {
            for message in self.receive(frame)? {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.body {
                    Body::Object(reply) => replies.extend(pick(reply)),
                    Body::Ack(Some(reason)) | Body::Done(Some(reason)) => {
                        return Err(frame.error(reason));
                    }
                    Body::Ack(None) => {}
                    Body::Done(None) => return Ok((!interrupted).then_some(replies)),
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

impl Frame {
    pub(crate) fn error(&self, reason: Reason) -> NetlinkError {
        NetlinkError {
            op: self.op,
            object: self.object.clone(),
            reason,
        }
    }

    fn encode(&self, sequence: u32, out: &mut Vec<u8>) -> Result<(), NetlinkError> {
        let length = u32::try_from(HEADER + self.payload.len())
            .map_err(|_too_long| NetlinkError::refused(self.op, &self.object, libc::EMSGSIZE))?;
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(&self.kind.to_ne_bytes());
        out.extend_from_slice(&(self.flags | NLM_F_REQUEST).to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        out.extend_from_slice(&0u32.to_ne_bytes());
        out.extend_from_slice(&self.payload);
        out.resize(out.len().next_multiple_of(4), 0);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Message {
    sequence: u32,
    flags: u16,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Object(Reply),
    /// `None`: success.
    Ack(Option<Reason>),
    /// End of a dump, `None`: success.
    Done(Option<Reason>),
}

/// Splits a datagram into its messages.
pub(crate) fn split(mut bytes: &[u8]) -> Result<Vec<Message>, &'static str> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or("short header")?;
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        let payload = bytes
            .get(HEADER..length)
            .ok_or("length outside the datagram")?;
        let flags = u16::from_ne_bytes([f0, f1]);
        let body = match u16::from_ne_bytes([k0, k1]) {
            NLMSG_NOOP => None,
            NLMSG_ERROR => Some(Body::Ack(outcome(payload, flags, true)?)),
            NLMSG_DONE => Some(Body::Done(outcome(payload, flags, false)?)),
            kind => Some(Body::Object(Reply {
                kind,
                payload: payload.to_vec(),
            })),
        };
        if let Some(body) = body {
            let sequence = u32::from_ne_bytes([s0, s1, s2, s3]);
            messages.push(Message {
                sequence,
                flags,
                body,
            });
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(messages)
}

/// Reads the error number and the kernel's explanation. An error message
/// repeats the request (its header only, when capped) before the attributes.
fn outcome(payload: &[u8], flags: u16, error: bool) -> Result<Option<Reason>, &'static str> {
    let Some(code) = payload.first_chunk() else {
        // A DONE message may be empty (kernels before 4.13).
        return if error {
            Err("short error message")
        } else {
            Ok(None)
        };
    };
    let code = i32::from_ne_bytes(*code);
    if code >= 0 {
        return Ok(None);
    }
    let skipped = match (error, flags & F_CAPPED != 0) {
        (false, _) => 4,
        (true, true) => 4 + HEADER,
        (true, false) => {
            let length = payload
                .get(4..8)
                .and_then(|l| l.first_chunk())
                .ok_or("short request")?;
            4 + u32::from_ne_bytes(*length) as usize
        }
    };
    let attributes = payload.get(skipped..).unwrap_or_default();
    let message = (flags & F_ACK_TLVS != 0)
        .then(|| explanation(attributes))
        .flatten();
    Ok(Some(Reason::Refused {
        errno: code.wrapping_neg(),
        message,
    }))
}

fn explanation(attributes: &[u8]) -> Option<String> {
    NlasIterator::new(attributes)
        .flatten()
        .find(|a| a.kind() == ATTR_MSG)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value())
                .trim_end_matches('\0')
                .to_owned()
        })
}

#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;
