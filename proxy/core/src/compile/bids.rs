//! Who asks for which frontend, kept from change to change.
//!
//! The same rule as [`claims`](super::claims), seen from the other side: of all bids for
//! a claim the first in their order wins, so a change concerns the bidders of the claims
//! that it touches and nobody else.

use std::collections::{BTreeMap, BTreeSet};

use super::claims::{self, Claim};
use crate::desired::{Family, Frontend, FrontendKind, ServicePortName};
use crate::ingest::ServiceSpec;
use crate::node::Node;
use crate::skipped::{ObjectKey, Skipped};

/// One Service port asks for one frontend. The first of the order has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bid {
    /// Position in [`claims::WAVES`].
    wave: usize,
    /// The older Service keeps a contested frontend.
    created: i64,
    key: ObjectKey,
    /// Position in `spec.ports` as served.
    place: usize,
    /// Position among the addresses of one kind.
    nth: usize,
    /// Name of the port.
    port: String,
    index: usize,
    frontend: Frontend,
}

impl Bid {
    fn name(&self) -> ServicePortName {
        ServicePortName {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            port: self.port.clone(),
        }
    }
}

/// All bids, by what is bidden for and by who bids.
#[derive(Clone, Debug, Default)]
pub(super) struct Bids {
    /// Sorted. A set has room for eleven from the beginning, and nearly all have one.
    by_claim: BTreeMap<Claim, Vec<Bid>>,
    /// What they bid for, in their order.
    by_service: BTreeMap<ObjectKey, Vec<Claim>>,
}

/// What came of a Service's bids.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    won: BTreeMap<(Family, ServicePortName), Vec<Frontend>>,
    pub(super) contested: Vec<Skipped>,
}

impl Outcome {
    /// What a Service port has won in a family, sorted.
    pub(super) fn take(&mut self, family: Family, name: &ServicePortName) -> Vec<Frontend> {
        let mut won = self.won.remove(&(family, name.clone())).unwrap_or_default();
        won.sort_unstable();
        won
    }
}

impl Bids {
    /// Replaces the bids of a Service; `None`: it is not served any more. Gives the
    /// Services that may have won or lost something, itself not among them.
    pub(super) fn replace(
        &mut self,
        key: &ObjectKey,
        spec: Option<&ServiceSpec>,
        node: &Node,
    ) -> BTreeSet<ObjectKey> {
        let new = spec.map_or_else(Vec::new, |spec| bids(key, spec, node));
        let old = self.of(key);
        if old == new {
            return BTreeSet::new();
        }
        if new.is_empty() {
            self.by_service.remove(key);
        } else {
            let claims = new.iter().map(claim).collect();
            self.by_service.insert(key.clone(), claims);
        }
        let mut concerned = BTreeSet::new();
        for bid in &old {
            self.withdraw(bid, &mut concerned);
        }
        for bid in new {
            let rivals = self.by_claim.entry(claim(&bid)).or_default();
            concerned.extend(rivals.iter().map(|rival| rival.key.clone()));
            if let Err(place) = rivals.binary_search(&bid) {
                rivals.reserve_exact(1);
                rivals.insert(place, bid);
            }
        }
        concerned.remove(key);
        concerned
    }

    /// All bids of a Service, in their order: of two ports with one number both are for
    /// one claim.
    fn of(&self, key: &ObjectKey) -> Vec<Bid> {
        let claims = self.by_service.get(key).into_iter().flatten();
        let bids = claims
            .filter_map(|claim| self.by_claim.get(claim))
            .flatten();
        let mut own: Vec<Bid> = bids.filter(|bid| bid.key == *key).cloned().collect();
        own.sort_unstable();
        own.dedup();
        own
    }

    fn withdraw(&mut self, bid: &Bid, concerned: &mut BTreeSet<ObjectKey>) {
        let claim = claim(bid);
        let Some(rivals) = self.by_claim.get_mut(&claim) else {
            return;
        };
        if let Ok(place) = rivals.binary_search(bid) {
            rivals.remove(place);
        }
        concerned.extend(rivals.iter().map(|rival| rival.key.clone()));
        if rivals.is_empty() {
            self.by_claim.remove(&claim);
        }
    }

    /// What a Service has won, and what others have of what it asks for.
    pub(super) fn outcome(&self, key: &ObjectKey) -> Outcome {
        let mut outcome = Outcome::default();
        for bid in &self.of(key) {
            let rivals = self.by_claim.get(&claim(bid));
            let Some(winner) = rivals.and_then(|rivals| rivals.first()) else {
                continue;
            };
            if winner == bid {
                let place = (Family::of(bid.frontend.addr), bid.name());
                outcome.won.entry(place).or_default().push(bid.frontend);
            } else if winner.name() != bid.name() {
                // What the same port has already, as another kind, stays that.
                let skip = claims::contested(key, bid.index, bid.frontend, winner.name());
                outcome.contested.push(skip);
            }
        }
        outcome
    }
}

fn claim(bid: &Bid) -> Claim {
    let Frontend {
        addr,
        port,
        protocol,
        ..
    } = bid.frontend;
    (addr, port, protocol)
}

/// Everything that a Service asks for.
fn bids(key: &ObjectKey, spec: &ServiceSpec, node: &Node) -> Vec<Bid> {
    let mut bids: Vec<Bid> = Vec::new();
    for (wave, kind) in claims::WAVES.into_iter().enumerate() {
        if kind == FrontendKind::ExternalIp && !node.external_ips {
            continue;
        }
        for (place, port) in spec.ports.iter().enumerate() {
            let asked = claims::frontends(kind, spec, port).enumerate();
            bids.extend(asked.map(|(nth, frontend)| Bid {
                wave,
                created: spec.created.unwrap_or(i64::MAX),
                key: key.clone(),
                place,
                nth,
                port: port.name.clone(),
                index: port.index,
                frontend,
            }));
        }
    }
    bids
}
