//! What is asked about, as text.

use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::desired::Protocol;

/// Whom a client asks for; shown as `address:port/protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Address and port.
    pub addr: SocketAddr,
    /// Transport.
    pub protocol: Protocol,
}

/// Text that is no [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    /// Address or port.
    #[error("{0:?} is not ADDRESS:PORT, such as 10.96.0.1:443 or [fd00::1]:443")]
    Address(String),
    /// 0 is not a port.
    #[error("port 0 is nobody's")]
    Port,
    /// What comes after the slash.
    #[error("{0:?} is none of TCP, UDP and SCTP")]
    Protocol(String),
}

impl FromStr for Target {
    type Err = BadTarget;

    fn from_str(text: &str) -> Result<Self, BadTarget> {
        let (addr, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
        let addr: SocketAddr = addr
            .parse()
            .map_err(|_not_one| BadTarget::Address(addr.to_owned()))?;
        if addr.port() == 0 {
            return Err(BadTarget::Port);
        }
        let protocol = match protocol.to_ascii_uppercase().as_str() {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => return Err(BadTarget::Protocol(protocol.to_owned())),
        };
        Ok(Self { addr, protocol })
    }
}
