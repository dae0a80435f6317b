//! Lists, which are read again while they change.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR};

use super::{Body, Frame, Reply, Wire};
use crate::error::{NetlinkError, Reason};

/// The CNI project's number, pkg/netlinksafe.
pub(super) const DUMP_ATTEMPTS: u32 = 5;

impl Wire {
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
}
