//! What one datagram of the kernel holds: objects, acknowledgements, ends of lists.

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NlasIterator};

use super::frame::{HEADER, Reply};
use crate::error::Reason;

/// `NLM_F_CAPPED` and `NLM_F_ACK_TLVS`, include/uapi/linux/netlink.h.
pub(super) const F_CAPPED: u16 = 0x100;
pub(super) const F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`, include/uapi/linux/netlink.h.
const ATTR_MSG: u16 = 1;

#[derive(Debug)]
pub(crate) struct Message {
    pub(super) sequence: u32,
    pub(super) flags: u16,
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
