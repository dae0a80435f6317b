//! Whether a link leaves the checksums of what it sends to the hardware.
//!
//! Between veth ends nobody computes them then, and nobody verifies them either, so that a
//! wrong one goes unseen. With it switched off the kernel does both, as between machines.

#![allow(unsafe_code, reason = "the ioctl has no safe wrapper")]

use std::io::{Error, ErrorKind, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use crate::Netns;

/// include/uapi/linux/ethtool.h
const GET_TX_CHECKSUMS: u32 = 0x16;
const SET_TX_CHECKSUMS: u32 = 0x17;

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq`, as far as it is read here; its union has 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: *mut Value,
    rest: [u64; 2],
}

mod call {
    #![allow(missing_docs, reason = "the macros make them public, without a word")]

    /// include/uapi/linux/sockios.h
    const SIOCETHTOOL: u64 = 0x8946;

    nix::ioctl_readwrite_bad!(ethtool, SIOCETHTOOL, super::Request);
}

impl Netns {
    /// Whether the kernel leaves checksums of what it sends through `link` to be filled in.
    ///
    /// # Errors
    /// What the kernel said, when there is no such link for example.
    pub fn tx_checksum_offload(&self, link: &str) -> Result<bool> {
        Ok(self.enter(|| ask(link, GET_TX_CHECKSUMS, 0))? != 0)
    }

    /// Switches it.
    ///
    /// # Errors
    /// As [`Self::tx_checksum_offload`], or when `link` cannot do without.
    pub fn set_tx_checksum_offload(&self, link: &str, on: bool) -> Result<()> {
        self.enter(|| ask(link, SET_TX_CHECKSUMS, on.into()))?;
        if self.tx_checksum_offload(link)? == on {
            Ok(())
        } else {
            Err(ErrorKind::Unsupported.into())
        }
    }
}

/// Of the calling thread's namespace.
fn ask(link: &str, command: u32, data: u32) -> Result<u32> {
    let mut value = Value { command, data };
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        value: &raw mut value,
        rest: [0; 2],
    };
    if link.len() >= request.name.len() {
        return Err(ErrorKind::InvalidInput.into());
    }
    request.name[..link.len()].copy_from_slice(link.as_bytes());
    // Any socket of the namespace will do.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: `request` is a whole `struct ifreq`, and the kernel reads and writes 8 bytes
    // where it points to.
    unsafe { call::ethtool(socket.as_raw_fd(), &raw mut request) }.map_err(Error::from)?;
    Ok(value.data)
}
