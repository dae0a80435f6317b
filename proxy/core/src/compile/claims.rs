//! Who has which frontend.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::port_name;
use crate::desired::{Family, Frontend, FrontendKind, Protocol, ServicePortName};
use crate::ingest::{Port, ServiceSpec};
use crate::node::Node;
use crate::skipped::{Kind, ObjectKey, SkipReason, Skipped};

/// The order in which kinds of addresses are claimed.
///
/// A cluster IP is the API server's to give and always stays its Service's; a
/// load balancer IP is written by a controller; an external IP by anybody who
/// may write Services, so it must not take any of the others away
/// (CVE-2020-8554).
pub(super) const WAVES: [FrontendKind; 4] = [
    FrontendKind::ClusterIp,
    FrontendKind::LoadBalancer,
    FrontendKind::ExternalIp,
    FrontendKind::NodePort,
];

/// Address, port and protocol: what only one Service port can have.
pub(super) type Claim = (IpAddr, u16, Protocol);

/// Frontends by who has them, and the other way round.
#[derive(Default)]
pub(super) struct Claims {
    holder: BTreeMap<Claim, ServicePortName>,
    won: BTreeMap<(Family, ServicePortName), Vec<Frontend>>,
}

impl Claims {
    /// Claims all frontends of one kind for a Service.
    pub(super) fn wave(
        &mut self,
        kind: FrontendKind,
        key: &ObjectKey,
        spec: &ServiceSpec,
        node: &Node,
        skipped: &mut Vec<Skipped>,
    ) {
        if kind == FrontendKind::ExternalIp && !node.external_ips {
            skipped.extend(external_ips_off(key, spec));
            return;
        }
        for port in &spec.ports {
            let name = port_name(key, port);
            for frontend in frontends(kind, spec, port) {
                if let Some(winner) = self.claim(&name, frontend) {
                    skipped.push(contested(key, port.index, frontend, winner));
                }
            }
        }
    }

    /// Gives a frontend to `name`, or says who has it. One that the same port
    /// has already, as another kind, stays that: the kind that comes first has
    /// the stricter policy.
    fn claim(&mut self, name: &ServicePortName, frontend: Frontend) -> Option<ServicePortName> {
        let claim = (frontend.addr, frontend.port, frontend.protocol);
        if let Some(holder) = self.holder.get(&claim) {
            return (holder != name).then(|| holder.clone());
        }
        self.holder.insert(claim, name.clone());
        let key = (Family::of(frontend.addr), name.clone());
        self.won.entry(key).or_default().push(frontend);
        None
    }

    /// What a Service port has won in a family, sorted.
    pub(super) fn take(&mut self, family: Family, name: &ServicePortName) -> Vec<Frontend> {
        let won = self.won.remove(&(family, name.clone()));
        let mut won = won.unwrap_or_default();
        won.sort_unstable();
        won
    }
}

/// What a Service port asks for, of one kind.
pub(super) fn frontends(
    kind: FrontendKind,
    spec: &ServiceSpec,
    port: &Port,
) -> impl Iterator<Item = Frontend> + use<> {
    let protocol = port.protocol;
    let addresses = addresses(kind, spec, port).into_iter();
    addresses.map(move |(addr, port)| Frontend {
        addr,
        port,
        protocol,
        kind,
    })
}

/// The addresses and port numbers of one kind.
fn addresses(kind: FrontendKind, spec: &ServiceSpec, port: &Port) -> Vec<(IpAddr, u16)> {
    let with_port = |addrs: &[IpAddr]| addrs.iter().map(|addr| (*addr, port.port)).collect();
    match kind {
        FrontendKind::ClusterIp => with_port(&spec.cluster_ips),
        FrontendKind::LoadBalancer => with_port(&spec.load_balancer_ips),
        FrontendKind::ExternalIp => with_port(&spec.external_ips),
        FrontendKind::NodePort => {
            let Some(number) = port.node_port else {
                return Vec::new();
            };
            let served = |family| spec.cluster_ips.iter().any(|ip| Family::of(*ip) == family);
            let families = Family::ALL.into_iter().filter(|family| served(*family));
            families
                .map(|family| (unspecified(family), number))
                .collect()
        }
    }
}

fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The operator serves no external IPs, and this Service has some.
pub(super) fn external_ips_off(key: &ObjectKey, spec: &ServiceSpec) -> Option<Skipped> {
    let field = "spec.externalIPs".to_owned();
    (!spec.external_ips.is_empty()).then(|| skip(key, field, SkipReason::ExternalIpsOff))
}

/// Somebody else has a frontend that a Service port asks for.
pub(super) fn contested(
    key: &ObjectKey,
    index: usize,
    frontend: Frontend,
    winner: ServicePortName,
) -> Skipped {
    let field = format!("spec.ports[{index}]");
    skip(key, field, SkipReason::Contested { frontend, winner })
}

fn skip(object: &ObjectKey, field: String, reason: SkipReason) -> Skipped {
    Skipped {
        kind: Kind::Service,
        object: object.clone(),
        field,
        reason,
    }
}
