//! What went wrong, during which operation, on which object.

use std::time::Duration;

use nix::errno::Errno;

/// A failed netlink operation.
///
/// `Display` gives the operation and its object in iproute2's words; the
/// source says why.
#[derive(Debug, thiserror::Error)]
#[error("{op} {object}")]
pub struct NetlinkError {
    /// The operation, for example `route replace`.
    pub op: &'static str,
    /// What it was tried on, for example `10.244.3.0/24 via 172.30.0.12`.
    pub object: String,
    /// Why it failed.
    #[source]
    pub reason: Reason,
}

/// Why a netlink operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The kernel, or a system call on the socket, refused.
    #[error("{}{}", errno_text(*.errno), detail(.message.as_deref()))]
    Refused {
        /// The error number, positive.
        errno: i32,
        /// The kernel's own explanation (extended ack), where it gave one.
        message: Option<String>,
    },
    /// No reply came; the request may or may not have been carried out.
    #[error("no reply from the kernel within {0:?}")]
    Timeout(Duration),
    /// The listed objects changed during every attempt to list them.
    #[error("the list changed while it was read, {0} times in a row")]
    DumpInterrupted(u32),
    /// The reply does not have the form that the protocol demands.
    #[error("malformed reply: {0}")]
    Malformed(String),
    /// The kernel sent no object although it reported success.
    #[error("the kernel's answer held no object")]
    Empty,
}

/// What a caller may do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The cause is gone by now; try at once.
    Now,
    /// The cause may go away; try later.
    Backoff,
    /// The same request will fail again.
    Never,
}

impl NetlinkError {
    /// A refusal by error number, as system calls report it.
    pub fn refused(op: &'static str, object: impl Into<String>, errno: i32) -> Self {
        let reason = Reason::Refused {
            errno,
            message: None,
        };
        Self {
            op,
            object: object.into(),
            reason,
        }
    }

    pub(crate) fn io(op: &'static str, object: impl Into<String>, error: &std::io::Error) -> Self {
        Self::refused(op, object, error.raw_os_error().unwrap_or(libc::EIO))
    }

    pub(crate) fn malformed(
        op: &'static str,
        object: impl Into<String>,
        what: &impl ToString,
    ) -> Self {
        Self {
            op,
            object: object.into(),
            reason: Reason::Malformed(what.to_string()),
        }
    }

    /// The error number, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self.reason {
            Reason::Refused { errno, .. } => Some(errno),
            _ => None,
        }
    }

    /// The object (or the link that it hangs on) does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::ENOENT | libc::ENODEV | libc::ESRCH | libc::EADDRNOTAVAIL | libc::ENXIO)
        )
    }

    /// Such an object exists already.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// The object, or the number wanted for it, is in use.
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(libc::EBUSY)
    }

    /// The caller lacks a capability.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The kernel does not know this kind of object.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno(),
            Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT)
        )
    }

    /// Whether trying again makes sense.
    pub fn retry(&self) -> Retry {
        match self.reason {
            Reason::DumpInterrupted(_) => Retry::Now,
            Reason::Timeout(_)
            | Reason::Refused {
                errno: libc::ENOBUFS | libc::ENOMEM | libc::EBUSY | libc::EAGAIN | libc::EINTR,
                ..
            } => Retry::Backoff,
            _ => Retry::Never,
        }
    }
}

fn errno_text(errno: i32) -> String {
    format!("{} (os error {errno})", Errno::from_raw(errno).desc())
}

fn detail(message: Option<&str>) -> String {
    message.map(|text| format!(": {text}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn text_names_operation_and_object_and_source_names_the_cause() {
        let error = NetlinkError::refused("route replace", "10.0.0.0/24", libc::ENODEV);
        assert_eq!(error.to_string(), "route replace 10.0.0.0/24");
        assert_eq!(
            error.source().unwrap().to_string(),
            "No such device (os error 19)"
        );
        assert!(error.is_not_found() && !error.is_exists());
        assert_eq!(error.retry(), Retry::Never);
    }

    #[test]
    fn kernel_explanation_is_kept() {
        let reason = Reason::Refused {
            errno: libc::ENETUNREACH,
            message: Some("Nexthop has invalid gateway".into()),
        };
        assert_eq!(
            reason.to_string(),
            "Network is unreachable (os error 101): Nexthop has invalid gateway"
        );
    }
}
