//! Affinity: what clients have met narrows whom they meet next.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Outcome, Packet, interpret, meant};
use crate::desired::{DesiredState, Family, ServicePort, ServicePortName};

/// Whom clients of Service ports with affinity have met. Times are since whatever beginning.
#[derive(Clone, Debug, Default)]
pub struct Memory(BTreeMap<(ServicePortName, IpAddr), Vec<Met>>);

/// An endpoint, and for how long it is remembered from when on.
#[derive(Clone, Copy, Debug)]
struct Met {
    endpoint: SocketAddr,
    at: Duration,
    timeout: Duration,
}

impl Memory {
    /// What is desired from now on: an endpoint that answers nobody any more is forgotten, and
    /// everybody is where there is no affinity, or another timeout.
    pub fn follow(&mut self, desired: &DesiredState) {
        for ((name, client), all) in &mut self.0 {
            let port = desired.family(Family::of(*client)).services.get(name);
            all.retain(|met| port.is_some_and(|port| keeps(port, met)));
        }
        self.0.retain(|_, all| !all.is_empty());
    }

    /// As [`interpret`], for a client that may have come before.
    pub fn interpret(
        &self,
        desired: &DesiredState,
        addresses: &BTreeSet<IpAddr>,
        packet: &Packet,
        now: Duration,
    ) -> Outcome {
        let outcome = interpret(desired, addresses, packet);
        let Outcome::Answered(mut endpoints) = outcome else {
            return outcome;
        };
        let half = desired.family(Family::of(packet.dst.ip()));
        let name = meant(half, addresses, packet).map(|(name, ..)| name.clone());
        let met = name.and_then(|name| self.0.get(&(name, packet.src)));
        let met = met.into_iter().flatten();
        let lasting = met.filter(|met| now < met.at + met.timeout);
        let known: BTreeSet<SocketAddr> = lasting.map(|met| met.endpoint).collect();
        // One that may not answer here is of no use here.
        if endpoints.keys().any(|endpoint| known.contains(endpoint)) {
            endpoints.retain(|endpoint, _| known.contains(endpoint));
        }
        Outcome::Answered(endpoints)
    }

    /// This endpoint has answered.
    pub fn met(
        &mut self,
        desired: &DesiredState,
        addresses: &BTreeSet<IpAddr>,
        packet: &Packet,
        endpoint: SocketAddr,
        at: Duration,
    ) {
        let half = desired.family(Family::of(packet.dst.ip()));
        let Some((name, port, _)) = meant(half, addresses, packet) else {
            return;
        };
        let Some(timeout) = port.affinity else {
            return;
        };
        let all = self.0.entry((name.clone(), packet.src)).or_default();
        all.retain(|met| met.endpoint != endpoint);
        all.push(Met {
            endpoint,
            at,
            timeout,
        });
    }
}

fn keeps(port: &ServicePort, met: &Met) -> bool {
    let endpoints = port.endpoints();
    port.affinity == Some(met.timeout) && endpoints.iter().any(|e| e.addr == met.endpoint)
}
