//! From Kubernetes objects to our own types, once, at the door.
//!
//! After this step there is no text that means an address and no `i32` that
//! means a port. What cannot be used is left out with a [`Skipped`]; nothing
//! here fails. Conversions look at one object alone; what depends on several
//! objects is [`compile`](crate::compile())'s.

mod external;
mod parse;
mod service;
mod slice;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnetwork::IpNetwork;

use crate::desired::{Protocol, TrafficPolicy};
use crate::skipped::{Kind, ObjectKey, SkipReason, Skipped};

pub use service::service;
pub use slice::endpoint_slice;

/// Label that hands a Service to another proxy; its presence counts, not its value.
pub const LABEL_SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label on slices of headless Services; its presence counts, not its value.
pub const LABEL_HEADLESS: &str = "service.kubernetes.io/headless";
/// Label that names the Service (of the same namespace) which a slice belongs to.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What an object came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingested<T> {
    /// `None` when nothing of the object is of use.
    pub value: Option<T>,
    /// What is left out, in the order of the object's fields.
    pub skipped: Vec<Skipped>,
}

/// What matters of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// `metadata.creationTimestamp` in seconds since 1970; decides contested
    /// frontends. `None` (never from an API server) counts as youngest.
    pub created: Option<i64>,
    /// At most one per family from a sane API server. A family without one is
    /// not served at all.
    pub cluster_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` with ipMode VIP (or none).
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.externalIPs`
    pub external_ips: Vec<IpAddr>,
    /// With different names.
    pub ports: Vec<Port>,
    /// `spec.internalTrafficPolicy`
    pub internal: TrafficPolicy,
    /// `spec.externalTrafficPolicy`, where the Service's type has one.
    pub external: TrafficPolicy,
    /// `spec.loadBalancerSourceRanges`, of both families; `None`: everybody.
    pub source_ranges: Option<Vec<IpNetwork>>,
    /// Timeout of session affinity by client address.
    pub affinity: Option<Duration>,
    /// `spec.healthCheckNodePort`, where it means something.
    pub health_check_node_port: Option<u16>,
}

/// A port of a Service, or of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// May be empty.
    pub name: String,
    /// Transport.
    pub protocol: Protocol,
    /// Never 0.
    pub port: u16,
    /// Of a Service: the port on the node's own addresses.
    pub node_port: Option<u16>,
    /// Index in the object, for messages.
    pub index: usize,
}

/// What matters of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// By label, in the slice's own namespace.
    pub service: ObjectKey,
    /// Usable ports.
    pub ports: Vec<Port>,
    /// Endpoints with a usable address, whatever their conditions.
    pub endpoints: Vec<SliceEndpoint>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// `addresses[0]`; the others have no meaning.
    pub addr: IpAddr,
    /// Where the pod runs, if it is a pod. There are many endpoints, and few nodes:
    /// the [`Model`](crate::Model) keeps each name once.
    pub node_name: Option<Arc<str>>,
    /// With the API's defaults filled in.
    pub conditions: Conditions,
    /// `None`: nobody in particular. Few endpoints have any.
    pub hints: Option<Box<Hints>>,
}

/// Whose clients should use an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hints {
    /// `hints.forNodes`
    pub for_nodes: Vec<String>,
    /// `hints.forZones`
    pub for_zones: Vec<String>,
}

impl SliceEndpoint {
    /// Nodes whose clients should use it.
    pub fn for_nodes(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.for_nodes)
    }

    /// Zones whose clients should use it.
    pub fn for_zones(&self) -> &[String] {
        self.hints.as_ref().map_or(&[], |hints| &hints.for_zones)
    }
}

/// An endpoint's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Absent means true.
    pub ready: bool,
    /// Absent means true.
    pub serving: bool,
    /// Absent means false.
    pub terminating: bool,
}

/// Collects what is left out of one object.
struct Skips {
    kind: Kind,
    object: ObjectKey,
    skipped: Vec<Skipped>,
}

impl Skips {
    fn new(kind: Kind, object: ObjectKey) -> Self {
        Self {
            kind,
            object,
            skipped: Vec::new(),
        }
    }

    fn push(&mut self, field: impl Into<String>, reason: SkipReason) {
        self.skipped.push(Skipped {
            kind: self.kind,
            object: self.object.clone(),
            field: field.into(),
            reason,
        });
    }

    /// The value, or a note why there is none.
    fn ok<T>(&mut self, field: impl Into<String>, result: Result<T, SkipReason>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(reason) => {
                self.push(field, reason);
                None
            }
        }
    }

    fn done<T>(self, value: Option<T>) -> Ingested<T> {
        Ingested {
            value,
            skipped: self.skipped,
        }
    }

    fn nothing<T>(mut self, field: &str, reason: SkipReason) -> Ingested<T> {
        self.push(field, reason);
        self.done(None)
    }
}

#[cfg(test)]
mod tests;
