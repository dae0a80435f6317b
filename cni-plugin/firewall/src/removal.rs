//! Removing the ports of pods that go.

use std::net::IpAddr;

use seaway_netlink::Family;

use crate::conntrack::{forget, lasts};
use crate::firewall::{FAMILIES, Firewall, FirewallError};
use crate::hostports::belongs_to;
use crate::message::batch;
use crate::set::{Element, delete_elements};

/// How often elements are tried to be deleted that others delete as well.
const DELETE_ATTEMPTS: u32 = 8;

/// Which elements of a pod are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Where flows are to be forgotten then, not what tells so to who comes after us if we are
    /// killed in between.
    UntilFlows,
    All,
}

impl Firewall {
    /// Removes all ports that lead to these pods, and forgets their flows of UDP
    /// and SCTP. Tells how many there were; none is fine.
    pub fn remove_host_ports_of(&mut self, pods: &[IpAddr]) -> Result<usize, FirewallError> {
        let mut count = 0;
        for family in FAMILIES {
            let pods: Vec<IpAddr> = pods
                .iter()
                .copied()
                .filter(|pod| Family::of(*pod) == family)
                .collect();
            if pods.is_empty() {
                continue;
            }
            let found = self.delete_elements_of(family, &pods, Part::UntilFlows)?;
            count += found.iter().filter(|e| !is_sign(e)).count();
            if leave_flows(&found) {
                forget(&mut self.wire, family, |flow| {
                    pods.iter().any(|pod| flow.leads_to(*pod))
                })
                .map_err(|source| FirewallError::Flows { source })?;
                self.delete_elements_of(family, &pods, Part::All)?;
            }
        }
        Ok(count)
    }

    /// Tells what there was. Somebody else may be removing the same: then nothing was removed,
    /// and what is left is looked for once more.
    fn delete_elements_of(
        &mut self,
        family: Family,
        pods: &[IpAddr],
        part: Part,
    ) -> Result<Vec<Element>, FirewallError> {
        let mut attempt = 1;
        loop {
            let mut found = self.host_port_elements(family)?;
            found.retain(|e| {
                pods.iter()
                    .any(|pod| belongs_to(e.set, &e.key, &e.data, *pod))
            });
            let signs_stay = part == Part::UntilFlows && leave_flows(&found);
            let mut doomed = found.clone();
            doomed.retain(|e| !(signs_stay && is_sign(e)));
            if doomed.is_empty() {
                return Ok(found);
            }
            match self.write(family, &batch(delete_elements(family, &doomed))) {
                Err(FirewallError::Write { source, .. })
                    if source.is_not_found() && attempt < DELETE_ATTEMPTS =>
                {
                    attempt += 1;
                }
                outcome => return outcome.map(|()| found),
            }
        }
    }
}

/// Whether ports with these elements leave flows that have to be forgotten. A sign without
/// ports has been left by who was killed before it had forgotten them.
fn leave_flows(elements: &[Element]) -> bool {
    let unfinished = !elements.is_empty() && elements.iter().all(is_sign);
    unfinished || elements.iter().any(is_lasting)
}

/// A pod's leave to come back to itself, which it has as long as it has ports.
pub(crate) fn is_sign(element: &Element) -> bool {
    element.data.is_empty()
}

fn is_lasting(element: &Element) -> bool {
    // The protocol is the last field but one of a map's key.
    let protocol = element.key.len().checked_sub(8);
    let protocol = protocol.and_then(|at| element.key.get(at));
    !is_sign(element) && protocol.copied().is_some_and(lasts)
}
