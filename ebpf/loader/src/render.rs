//! What the kernel is to hold, in terms that its own numbers do not show in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};

use seaway_ebpf_abi::PROGRAMS;
use seaway_proxy_core::desired::{DesiredState, Frontend, Protocol, ServicePortName};

/// A frontend as the maps know it. The order is that of the text form.
pub(crate) type FrontendAddr = (SocketAddrV4, Protocol);

/// Content of the maps, and the programs at work on them.
///
/// Set numbers are not part of it: they differ between runs and mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl fmt::Display for UnsupportedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv6 => f.write_str("the eBPF data plane does not serve IPv6 yet"),
        }
    }
}

/// A frontend that this data plane leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported<'a> {
    /// The Service port.
    pub service: &'a ServicePortName,
    /// Which of its frontends.
    pub frontend: Frontend,
    /// Why.
    pub reason: UnsupportedReason,
}

/// The frontends of `desired` that render leaves out, for the caller to report.
pub fn unsupported(desired: &DesiredState) -> Vec<Unsupported<'_>> {
    let frontends = desired
        .services
        .iter()
        .flat_map(|(name, port)| port.frontends.iter().map(move |frontend| (name, *frontend)));
    frontends
        .filter(|(_, frontend)| frontend.addr.is_ipv6())
        .map(|(service, frontend)| Unsupported {
            service,
            frontend,
            reason: UnsupportedReason::Ipv6,
        })
        .collect()
}

/// The maps and links that mean `desired`.
pub(crate) fn render(desired: &DesiredState) -> Rendered {
    let mut services = BTreeMap::new();
    for port in desired.services.values() {
        let endpoints = || {
            let v4 = port
                .endpoints
                .iter()
                .filter_map(|endpoint| match endpoint.addr {
                    SocketAddr::V4(addr) => Some(addr),
                    SocketAddr::V6(_) => None,
                });
            v4.collect::<Vec<_>>()
        };
        for frontend in &port.frontends {
            if let SocketAddr::V4(addr) = SocketAddr::new(frontend.addr, frontend.port) {
                services.insert((addr, frontend.protocol), endpoints());
            }
        }
    }
    Rendered {
        links: PROGRAMS.into(),
        services,
        orphans: 0,
    }
}

#[cfg(test)]
mod tests;
