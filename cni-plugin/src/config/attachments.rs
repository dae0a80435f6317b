//! What a runtime says is there.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{config, optional, parse};
use crate::error::Error;
use crate::ipam::Key;

const VALID_ATTACHMENTS: &str = "cni.dev/valid-attachments";

/// The attachments that `GC` must leave alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachments(pub(crate) BTreeSet<Key>);

impl Attachments {
    /// # Errors
    /// A list that is absent is not an empty one: everything would be removed.
    pub(crate) fn parse(stdin: &[u8]) -> Result<Self, Error> {
        let (object, ..) = parse(stdin)?;
        // libcni 1.2.0 to 1.2.2 know only the second name (cni#1101).
        for name in [VALID_ATTACHMENTS, "cni.dev/attachments"] {
            let list: Option<Vec<Attachment>> = optional(&object, name, name)?;
            if let Some(list) = list {
                return Ok(Self(list.into_iter().map(Into::into).collect()));
            }
        }
        Err(config(VALID_ATTACHMENTS, "is required for GC"))
    }
}

/// CNI specification 1.1.0, section 4, "GC".
#[derive(Deserialize)]
struct Attachment {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

impl From<Attachment> for Key {
    fn from(attachment: Attachment) -> Self {
        Self {
            container_id: attachment.container_id,
            ifname: attachment.ifname,
        }
    }
}
