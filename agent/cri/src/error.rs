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
        source: Refusal,
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

/// How a call was answered: gRPC's code and one message, without the headers, details
/// and inner errors that `Status` shows as well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct Refusal {
    code: Code,
    message: String,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        // Only a status that was made on this side has causes. The last one says what
        // happened (`No such file or directory`), the others who noticed it.
        let mut cause = std::error::Error::source(&status);
        while let Some(deeper) = cause.and_then(std::error::Error::source) {
            cause = Some(deeper);
        }
        Self {
            code: status.code(),
            message: cause.map_or_else(|| status.message().to_owned(), ToString::to_string),
        }
    }
}

impl CriError {
    fn code(&self) -> Option<Code> {
        match self {
            Self::Call { source, .. } => Some(source.code),
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
            Self::Call { source, .. } => source.message.clone(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_answer_is_code_and_message() {
        let mut status = Status::not_found("no such container: abc");
        status
            .metadata_mut()
            .insert("x-noise", "1".parse().unwrap());
        let error = CriError::Call {
            operation: "stop container",
            object: "abc".into(),
            socket: "/run/c.sock".into(),
            source: status.into(),
        };
        assert_eq!(error.to_string(), "stop container abc through /run/c.sock");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "NotFound: no such container: abc");
        assert_eq!(error.message(), "no such container: abc");
        assert!(error.is_not_found());
    }
}
