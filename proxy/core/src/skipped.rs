//! Why an object, or a part of one, is not served.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::desired::{Family, Frontend, ServicePortName};

/// Namespace and name of an object; shown as `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
}

impl ObjectKey {
    /// Both parts as the API server gives them.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Of an object; a missing part (never from an API server) is empty.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds that the service proxy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1` Service
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice
    EndpointSlice,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        })
    }
}

/// One thing that is not programmed, and why.
///
/// Nothing else suffers: the rest of the object, and every other object, is
/// served as if the skipped part were not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Skipped {
    /// Which kind of object.
    pub kind: Kind,
    /// Which object.
    pub object: ObjectKey,
    /// Path of the field inside the object, like `spec.ports[1].port`.
    pub field: String,
    /// Why.
    pub reason: SkipReason,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}: {}",
            self.kind, self.object, self.field, self.reason
        )
    }
}

/// Who, if anybody, should act on a [`Skipped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipClass {
    /// Nobody: the object says that it is not for the service proxy.
    Intended,
    /// The object's owner: the field makes no sense.
    Malformed,
    /// The object's owner: another Service has the address.
    Contested,
    /// The operator: valid, but not served by the backend in use.
    Unsupported,
}

impl SkipClass {
    /// For logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Malformed => "malformed",
            Self::Contested => "contested",
            Self::Unsupported => "unsupported",
        }
    }
}

/// Why something is not programmed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum SkipReason {
    /// `clusterIP: None`
    #[error("headless, no address to serve")]
    Headless,
    /// No clusterIP has been allocated (yet).
    #[error("no cluster IP allocated")]
    NoClusterIp,
    /// `type: ExternalName`
    #[error("ExternalName is served by DNS alone")]
    ExternalName,
    /// Label `service.kubernetes.io/service-proxy-name`
    #[error("left to the service proxy {name:?}")]
    OtherProxy {
        /// The label's value; may be empty.
        name: String,
    },
    /// A slice of a headless Service.
    #[error("belongs to a headless Service")]
    HeadlessSlice,
    /// A slice without the label that names its Service.
    #[error("names no Service")]
    NoService,
    /// A slice of names, not of addresses.
    #[error("names cannot be endpoints of a cluster IP")]
    Fqdn,
    /// A field without which the object cannot be understood.
    #[error("missing")]
    Missing,
    /// Not an IP address.
    #[error("{value:?} is not an IP address")]
    BadAddress {
        /// As found.
        value: String,
    },
    /// Not a network in CIDR form.
    #[error("{value:?} is not a CIDR")]
    BadNetwork {
        /// As found.
        value: String,
    },
    /// A word that the API does not know.
    #[error("{value:?} is none of {expected}")]
    UnknownValue {
        /// As found.
        value: String,
        /// What it could be.
        expected: &'static str,
    },
    /// A number that the API does not allow.
    #[error("{value} is not within {expected}")]
    OutOfRange {
        /// As found.
        value: i32,
        /// What it could be.
        expected: &'static str,
    },
    /// `ipMode: Proxy`: traffic must go through the load balancer itself.
    #[error("ipMode Proxy, the load balancer wants to see the traffic")]
    ProxiedByLoadBalancer,
    /// A load balancer that is known by name alone.
    #[error("a name and no address")]
    NoAddress,
    /// An external address of a family in which the Service has no cluster IP.
    #[error("the Service has no {family} cluster IP, so {value} is not served")]
    NoClusterIpOfFamily {
        /// As found.
        value: String,
        /// Which one.
        family: Family,
    },
    /// Source ranges of one family only, on a Service with load balancer IPs of
    /// both: nobody may use those of the other.
    #[error("no source range of {family}, so the load balancer IPs of that family admit nobody")]
    NoRangeOfFamily {
        /// Which one.
        family: Family,
    },
    /// `spec.externalIPs` are switched off by the operator.
    #[error("external IPs are switched off on this node")]
    ExternalIpsOff,
    /// An address to which no Service may lead.
    #[error("{value} is a {what} address")]
    ForbiddenAddress {
        /// As found.
        value: String,
        /// What kind of address it is.
        what: &'static str,
    },
    /// An address of the other family than the object declares.
    #[error("{value} is not an {expected} address")]
    WrongFamily {
        /// As found.
        value: String,
        /// `IPv4` or `IPv6`
        expected: &'static str,
    },
    /// Neither IPv4, IPv6 nor FQDN.
    #[error("{value:?} is none of IPv4, IPv6 and FQDN")]
    UnknownAddressType {
        /// As found.
        value: String,
    },
    /// Not a port number.
    #[error("{value} is not a port number (1-65535)")]
    BadPort {
        /// As found.
        value: i32,
    },
    /// Not a transport protocol.
    #[error("{value:?} is none of TCP, UDP and SCTP")]
    UnknownProtocol {
        /// As found.
        value: String,
    },
    /// Two ports of one Service with one name.
    #[error("another port of the Service is named {name:?} too")]
    DuplicatePortName {
        /// The name; may be empty.
        name: String,
    },
    /// The same address, port and protocol belongs to an older Service (or an
    /// earlier port of the same one).
    #[error("{frontend} belongs to {winner}")]
    Contested {
        /// What both want.
        frontend: Frontend,
        /// Who has it.
        winner: ServicePortName,
    },
    /// Valid, but the backend in use does not serve it, or not as it should be.
    #[error("{frontend}: {why}")]
    Backend {
        /// What is not served.
        frontend: Frontend,
        /// The backend's reason.
        why: String,
        /// Whether clients are answered all the same.
        served: bool,
    },
}

impl SkipReason {
    /// Who should act.
    pub fn class(&self) -> SkipClass {
        match self {
            Self::Headless
            | Self::NoClusterIp
            | Self::ExternalName
            | Self::OtherProxy { .. }
            | Self::HeadlessSlice
            | Self::NoService
            | Self::ProxiedByLoadBalancer
            | Self::NoAddress
            | Self::ExternalIpsOff
            | Self::Fqdn => SkipClass::Intended,
            Self::Missing
            | Self::BadAddress { .. }
            | Self::BadNetwork { .. }
            | Self::UnknownValue { .. }
            | Self::OutOfRange { .. }
            | Self::NoClusterIpOfFamily { .. }
            | Self::NoRangeOfFamily { .. }
            | Self::ForbiddenAddress { .. }
            | Self::WrongFamily { .. }
            | Self::UnknownAddressType { .. }
            | Self::BadPort { .. }
            | Self::UnknownProtocol { .. }
            | Self::DuplicatePortName { .. } => SkipClass::Malformed,
            Self::Contested { .. } => SkipClass::Contested,
            Self::Backend { .. } => SkipClass::Unsupported,
        }
    }
}
