//! What can go wrong, with the specification's code for it.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use seaway_firewall::{FirewallError, HostPort};
use seaway_netlink::{NetlinkError, Reason};
use serde_json::{Value, json};

use crate::ipam::Holders;
use crate::upkeep::told;
use crate::version::Version;

/// A failed call. `Display` becomes `msg`, the chain of sources `details`.
///
/// containerd takes a DEL error that contains "not found" for success, so no
/// text here contains it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("required environment variables are missing: {}", names.join(", "))]
    MissingEnv { names: Vec<&'static str> },
    #[error("environment variable {name}={value:?} {why}")]
    InvalidEnv {
        name: &'static str,
        value: String,
        why: String,
    },
    #[error("CNI_COMMAND={verb} is not supported by this plugin")]
    UnsupportedVerb { verb: String },
    #[error("read the network configuration from standard input")]
    Stdin {
        #[source]
        source: io::Error,
    },
    #[error("the network configuration is not JSON")]
    Json {
        #[source]
        source: serde_json::Error,
    },
    #[error("network configuration: {key}: {why}")]
    Config { key: String, why: String },
    #[error("network configuration: {key}={value} is not supported")]
    UnsupportedField { key: String, value: String },
    #[error("cniVersion {requested:?} is not supported, only {}", Version::list())]
    Version { requested: String },
    #[error("CNI_COMMAND={verb} needs cniVersion {needed}, and the configuration says {have}")]
    VerbVersion {
        verb: &'static str,
        needed: Version,
        have: Version,
    },
    #[error("open the network namespace CNI_NETNS={}", path.display())]
    Netns {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("CNI_NETNS={} is the namespace that the plugin itself runs in", path.display())]
    OwnNetns { path: PathBuf },
    #[error("container {container_id} has an attachment {ifname} already; DEL must come first")]
    AlreadyAttached {
        container_id: String,
        ifname: String,
    },
    #[error("interface {ifname} exists already in {place}")]
    LinkExists { ifname: String, place: String },
    #[error("{ifname}: the pod has a default route by {other} already")]
    DefaultRouteExists { ifname: String, other: String },
    #[error("no free address in {pool}: all {size} are taken, by {holders}")]
    Exhausted {
        pool: String,
        size: u128,
        holders: Holders,
    },
    #[error("address {address} is taken by container {holder}")]
    AddressTaken { address: IpAddr, holder: String },
    #[error("address {address} is in no range of ipam.ranges")]
    OutOfRange { address: IpAddr },
    #[error("ipam.ranges has an IPv6 range, but this kernel has no IPv6 (there is no {path})")]
    NoIpv6 { path: &'static str },
    #[error("ipam.type={kind}: there is no such plugin in CNI_PATH={path}")]
    NoPlugin { kind: String, path: String },
    #[error("{verb} of the IPAM plugin {kind}: {why}")]
    Delegate {
        kind: String,
        verb: &'static str,
        code: u32,
        why: String,
    },
    #[error("another process holds the lock {} for more than {seconds} s", path.display())]
    Locked { path: PathBuf, seconds: u64 },
    #[error("the kernel took {seconds} s, longer than runtimes wait; try again later")]
    Late { seconds: u64 },
    #[error("{op} {}", path.display())]
    File {
        op: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{step}")]
    Netlink {
        step: &'static str,
        #[source]
        source: NetlinkError,
    },
    #[error("{step}")]
    Firewall {
        step: &'static str,
        #[source]
        source: FirewallError,
    },
    #[error("hostPort {port} is taken: it leads to {holder} of container {container_id}")]
    HostPortTaken {
        port: HostPort,
        holder: IpAddr,
        container_id: String,
    },
    #[error("write the result to standard output")]
    Stdout {
        #[source]
        source: io::Error,
    },
    #[error("check: {what}")]
    Check { what: String },
    #[error("no address for container {container_id}, interface {ifname}, but {wanted} was given")]
    NoRecord {
        container_id: String,
        ifname: String,
        wanted: IpAddr,
    },
    #[error("not ready to add pods")]
    NotReady {
        #[source]
        source: Box<Error>,
    },
    #[error("pods exist, and {} is not 1, so that they are cut off", path.display())]
    ForwardingOff { path: PathBuf },
    #[error("the pod network does not serve: {why}")]
    NotServing { why: String, pods: usize },
    #[error("the node's daemon has not served since this boot: {why}; try again later")]
    NotYet { why: String },
    #[error("a record of container {container_id}, interface {ifname}, stays")]
    Kept {
        container_id: String,
        ifname: String,
        #[source]
        source: Box<Error>,
    },
    /// Several things were to be done, and some of them failed.
    #[error("{what}: {} failures, the first: {first}", .others.len() + 1)]
    Several {
        what: &'static str,
        first: Box<Error>,
        others: Vec<Error>,
    },
    /// The original failure, and what could not be undone after it.
    #[error("{failure}")]
    NotUndone {
        failure: Box<Error>,
        undo: Vec<String>,
    },
}

impl Error {
    /// CNI specification 1.1.0, section 5 "Error"; ours are from 100.
    pub(crate) fn code(&self) -> u32 {
        match self {
            Self::Version { .. } | Self::VerbVersion { .. } => 1,
            Self::UnsupportedField { .. } => 2,
            Self::MissingEnv { .. }
            | Self::InvalidEnv { .. }
            | Self::UnsupportedVerb { .. }
            | Self::Netns { .. } => 4,
            Self::Stdin { .. } | Self::File { .. } | Self::Stdout { .. } => 5,
            Self::Json { .. } => 6,
            Self::Config { .. }
            | Self::OutOfRange { .. }
            | Self::NoIpv6 { .. }
            | Self::NoPlugin { .. } => 7,
            Self::Delegate { code, .. } => *code,
            // Not in the text of the specification, but in its Go library.
            Self::OwnNetns { .. } => 8,
            Self::Exhausted { .. }
            | Self::Locked { .. }
            | Self::Late { .. }
            | Self::NotYet { .. } => 11,
            Self::Netlink { .. } | Self::Firewall { .. } if self.timed_out() => 11,
            Self::NotReady { source } => match **source {
                // Pods that exist may suffer, too.
                Self::ForwardingOff { .. } | Self::NotServing { pods: 1.., .. } => 51,
                _ => 50,
            },
            Self::ForwardingOff { .. } | Self::NotServing { pods: 1.., .. } => 51,
            Self::NotServing { .. } => 50,
            Self::Kept { source, .. } => source.code(),
            Self::Several { first, .. } => first.code(),
            Self::AlreadyAttached { .. }
            | Self::LinkExists { .. }
            | Self::DefaultRouteExists { .. }
            | Self::AddressTaken { .. }
            | Self::HostPortTaken { .. } => 100,
            Self::Netlink { .. } | Self::Firewall { .. } => 101,
            Self::Check { .. } | Self::NoRecord { .. } => 102,
            Self::NotUndone { failure, .. } => failure.code(),
        }
    }

    /// The kernel is busy, and may not be later.
    fn timed_out(&self) -> bool {
        let mut next = self.source();
        while let Some(error) = next {
            if let Some(Reason::Timeout(_)) = error.downcast_ref() {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// One error from none, one or many.
    pub(crate) fn all(what: &'static str, failures: Vec<Self>) -> Result<(), Self> {
        let mut failures = failures.into_iter();
        let Some(first) = failures.next() else {
            return Ok(());
        };
        let others: Vec<Self> = failures.collect();
        if others.is_empty() {
            return Err(first);
        }
        Err(Self::Several {
            what,
            first: Box::new(first),
            others,
        })
    }

    /// Everything that `Display` leaves out.
    pub(crate) fn details(&self) -> String {
        if let Self::Several { first, others, .. } = self {
            let all = std::iter::once(&**first).chain(others);
            let texts: Vec<String> = all.map(told).collect();
            return texts.join("; ");
        }
        let mut parts = Vec::new();
        let mut undone = &[][..];
        let mut next = match self {
            Self::NotUndone { failure, undo } => {
                undone = undo;
                failure.source()
            }
            _ => self.source(),
        };
        while let Some(source) = next {
            parts.push(source.to_string());
            next = source.source();
        }
        let mut details = parts.join(": ");
        for failure in undone {
            let separator = if details.is_empty() { "" } else { "; " };
            details = format!("{details}{separator}not undone: {failure}");
        }
        details
    }

    /// The object for standard output.
    pub(crate) fn to_json(&self, version: Version) -> Value {
        json!({
            "cniVersion": version.as_str(),
            "code": self.code(),
            "msg": self.to_string(),
            "details": self.details(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_13_message_says_what_details_say_why() {
        let source = NetlinkError::refused("link add veth", "sw1 peer eth0", 17);
        let error = Error::Netlink {
            step: "create the pod's interface",
            source,
        };
        let failure = Error::NotUndone {
            failure: Box::new(error),
            undo: vec!["release 10.0.0.2".into()],
        };
        assert_eq!(
            failure.to_json(Version::V1_0_0),
            json!({
                "cniVersion": "1.0.0",
                "code": 101,
                "msg": "create the pod's interface",
                "details": "link add veth sw1 peer eth0: File exists (os error 17); \
                            not undone: release 10.0.0.2",
            })
        );
    }
}
