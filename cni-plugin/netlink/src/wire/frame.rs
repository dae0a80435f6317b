//! Single messages, to the kernel and from it.

use netlink_packet_core::NLM_F_REQUEST;

use crate::error::{NetlinkError, Reason};

pub(super) const HEADER: usize = 16;

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

impl Frame {
    pub(crate) fn error(&self, reason: Reason) -> NetlinkError {
        NetlinkError {
            op: self.op,
            object: self.object.clone(),
            reason,
        }
    }

    pub(super) fn encode(&self, sequence: u32, out: &mut Vec<u8>) -> Result<(), NetlinkError> {
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
