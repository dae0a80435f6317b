//! What can go wrong in a call to the runtime.

use std::path::PathBuf;
use std::time::Duration;

use tonic::{Code, Status};

/// A call to the container runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The endpoint flag is not a unix socket address.
    #[error("runtime endpoint {endpoint:?} is not unix:///path")]
    Endpoint {
        /// As given.
        endpoint: String,
    },
    /// No answer within the deadline; the runtime may still finish the work.
    #[error("{operation} {object}: no answer from the runtime within {limit:?}")]
    Timeout {
        /// What was asked, in words.
        operation: &'static str,
        /// Of which object.
        object: String,
        /// The deadline.
        limit: Duration,
    },
    /// The runtime refused, or could not be reached.
    #[error("{operation} {object} through {}", .socket.display())]
    Call {
        /// What was asked, in words.
        operation: &'static str,
        /// Of which object.
        object: String,
        /// The runtime's socket.
        socket: PathBuf,
        /// The runtime's answer.
        #[source]
        source: Box<Status>,
    },
    /// The runtime answered without the part that the API promises.
    #[error("{operation} {object}: the runtime's answer has no {field}")]
    Incomplete {
        /// What was asked, in words.
        operation: &'static str,
        /// Of which object.
        object: String,
        /// What is missing.
        field: &'static str,
    },
}

impl CriError {
    fn code(&self) -> Option<Code> {
        match self {
            Self::Call { source, .. } => Some(source.code()),
            _ => None,
        }
    }

    /// The object does not exist (any more).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// The runtime is too old for this call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// The socket is missing or nobody answers on it.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Timeout { .. }) || self.code() == Some(Code::Unavailable)
    }

    /// The runtime's own words where there are any, for events and statuses
    /// that a person reads.
    pub fn message(&self) -> String {
        match self {
            Self::Call { source, .. } => source.message().to_owned(),
            other => other.to_string(),
        }
    }
}
