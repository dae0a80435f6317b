//! Endpoints of a Service's slices: who answers at a frontend, and why others do not.

use super::{Candidate, Facts, LeftOut, used, word};
use crate::compile::endpoints::reasons::Choice;
use crate::desired::{Family, Frontend, ServicePort, ServicePortName, TrafficPolicy};
use crate::skipped::ObjectKey;

/// Those that compete, then those that cannot.
pub(super) fn candidates(
    known: Facts<'_>,
    name: &ServicePortName,
    port: &ServicePort,
    frontend: &Frontend,
    choice: Option<Choice>,
) -> Vec<Candidate> {
    let policies = used(port, frontend);
    let judged = choice.map(|choice| choice.judged).unwrap_or_default();
    let of_judged = |judged: crate::compile::endpoints::reasons::Judged| {
        let mut candidate = Candidate {
            address: judged.addr.to_string(),
            node: judged.node,
            local: judged.local,
            answers: Vec::new(),
            left_out: Vec::new(),
        };
        for policy in &policies {
            let reason = match policy {
                TrafficPolicy::Cluster => judged.cluster.clone(),
                TrafficPolicy::Local => judged.own.clone(),
            };
            let policy = word(*policy).to_owned();
            match reason {
                None => candidate.answers.push(policy),
                Some(reason) => candidate.left_out.push(LeftOut {
                    policy: Some(policy),
                    reason,
                }),
            }
        }
        candidate
    };
    let mut found: Vec<_> = judged.into_iter().map(of_judged).collect();
    found.extend(outsiders(known, name, frontend));
    found
}

/// Endpoints of the Service's slices that this port and family cannot use.
fn outsiders(known: Facts<'_>, name: &ServicePortName, frontend: &Frontend) -> Vec<Candidate> {
    let key = ObjectKey::new(&name.namespace, &name.name);
    let family = Family::of(frontend.addr);
    let mut found = Vec::new();
    for slice in known.model.slices_of(&key) {
        let fits = |p: &&crate::ingest::Port| p.name == name.port;
        let same_name = slice.ports.iter().find(fits);
        let port_reason = match same_name {
            Some(port) if port.protocol == frontend.protocol => None,
            Some(port) => Some(format!("its port {:?} is {}", name.port, port.protocol)),
            None => Some(format!("no port of its slice is named {:?}", name.port)),
        };
        for endpoint in &slice.endpoints {
            let other = Family::of(endpoint.addr);
            let reason = if other == family {
                port_reason.clone()
            } else {
                Some(format!("{other}, this address is {family}"))
            };
            let Some(reason) = reason else { continue };
            found.push(Candidate {
                address: endpoint.addr.to_string(),
                node: endpoint.node_name.as_deref().map(str::to_owned),
                local: endpoint.node_name.as_deref() == Some(known.node.name.as_str()),
                answers: Vec::new(),
                left_out: vec![LeftOut {
                    policy: None,
                    reason,
                }],
            });
        }
    }
    found
}
