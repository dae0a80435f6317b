//! What the kernel is to hold, in terms that its own numbers do not show in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};

use seaway_ebpf_abi::PROGRAMS;
use seaway_proxy_core::desired::{
    DesiredState, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName, TrafficPolicy,
};
use seaway_proxy_core::skipped::{Kind, ObjectKey, SkipReason, Skipped};

/// A frontend as the maps know it. The order is that of the text form.
pub(crate) type FrontendAddr = (SocketAddrV4, Protocol);

/// Content of the maps, and the programs at work on them.
///
/// Set numbers are not part of it: they differ between runs and mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rendered {
    /// Programs of this process that are attached.
    pub(crate) links: BTreeSet<&'static str>,
    /// Endpoints by frontend, in slot order.
    pub(crate) services: BTreeMap<FrontendAddr, Vec<SocketAddrV4>>,
    /// Slots that no service leads to, as an interrupted update leaves them.
    pub(crate) orphans: usize,
}

impl fmt::Display for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.links {
            writeln!(f, "link {name}")?;
        }
        for ((addr, protocol), endpoints) in &self.services {
            writeln!(f, "service {addr}/{protocol} endpoints={}", endpoints.len())?;
            for (index, endpoint) in endpoints.iter().enumerate() {
                writeln!(f, "slot {addr}/{protocol} {index} {endpoint}")?;
            }
        }
        if self.orphans > 0 {
            writeln!(f, "orphan slots={}", self.orphans)?;
        }
        Ok(())
    }
}

/// Why a frontend is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedReason {
    /// The programs do not translate IPv6 yet.
    Ipv6,
    /// The programs translate TCP and UDP.
    Sctp,
    /// The programs serve cluster IPs only.
    Kind(FrontendKind),
    /// The programs remember no clients. The frontend is served without.
    Affinity,
}

impl UnsupportedReason {
    /// Why render leaves a frontend out, if it does.
    fn of(frontend: &Frontend) -> Option<Self> {
        if frontend.kind != FrontendKind::ClusterIp {
            Some(Self::Kind(frontend.kind))
        } else if frontend.protocol == Protocol::Sctp {
            Some(Self::Sctp)
        } else if frontend.addr.is_ipv6() {
            Some(Self::Ipv6)
        } else {
            None
        }
    }
}

impl fmt::Display for UnsupportedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv6 => f.write_str("the eBPF data plane does not serve IPv6 yet"),
            Self::Sctp => f.write_str("the eBPF data plane does not serve SCTP"),
            Self::Kind(kind) => write!(f, "the eBPF data plane does not serve a {kind} yet"),
            Self::Affinity => {
                f.write_str("the eBPF data plane serves it without session affinity yet")
            }
        }
    }
}

/// A frontend that this data plane leaves out, or does not serve as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported<'a> {
    /// The Service port.
    pub service: &'a ServicePortName,
    /// Which of its frontends.
    pub frontend: Frontend,
    /// Why.
    pub reason: UnsupportedReason,
}

impl From<Unsupported<'_>> for Skipped {
    fn from(left_out: Unsupported<'_>) -> Self {
        let Unsupported {
            service,
            frontend,
            reason,
        } = left_out;
        Self {
            kind: Kind::Service,
            object: ObjectKey::new(service.namespace.clone(), service.name.clone()),
            field: format!("spec.ports[name={:?}]", service.port),
            reason: SkipReason::Backend {
                frontend,
                why: reason.to_string(),
                served: reason == UnsupportedReason::Affinity,
            },
        }
    }
}

/// Everything in `desired` that the maps will not mean, for the caller to report.
pub fn unsupported(desired: &DesiredState) -> Vec<Unsupported<'_>> {
    let mut found = Vec::new();
    for half in [&desired.v4, &desired.v6] {
        for (service, port) in &half.services {
            for frontend in &port.frontends {
                let affinity = port.affinity.map(|_| UnsupportedReason::Affinity);
                let reason = UnsupportedReason::of(frontend).or(affinity);
                found.extend(reason.map(|reason| Unsupported {
                    service,
                    frontend: *frontend,
                    reason,
                }));
            }
        }
    }
    found
}

/// The maps and links that mean `desired`.
pub(crate) fn render(desired: &DesiredState) -> Rendered {
    let mut services = BTreeMap::new();
    for port in desired.v4.services.values() {
        let served = port.frontends.iter();
        for frontend in served.filter(|f| UnsupportedReason::of(f).is_none()) {
            if let SocketAddr::V4(addr) = SocketAddr::new(frontend.addr, frontend.port) {
                services.insert((addr, frontend.protocol), endpoints(port));
            }
        }
    }
    Rendered {
        links: PROGRAMS.into(),
        services,
        orphans: 0,
    }
}

/// What answers on a cluster IP.
fn endpoints(port: &ServicePort) -> Vec<SocketAddrV4> {
    let set = match port.internal {
        TrafficPolicy::Cluster => &port.cluster,
        TrafficPolicy::Local => &port.local,
    };
    let v4 = set.iter().filter_map(|endpoint| match endpoint.addr {
        SocketAddr::V4(addr) => Some(addr),
        SocketAddr::V6(_) => None,
    });
    v4.collect()
}

#[cfg(test)]
mod tests;
