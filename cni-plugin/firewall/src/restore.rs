//! Writing hostPorts again that somebody has flushed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use seaway_netlink::Family;
use seaway_netlink::wire::Frame;

use crate::firewall::{FAMILIES, Firewall, FirewallError, agree};
use crate::hostports::{CHAINS, HostPort, hairpin, ruleset};
use crate::message::{batch, replace_frames};
use crate::ports::pod_of;
use crate::set::{Element, add_elements};

/// What [`Firewall::restore_host_ports`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Ports that were missing and are there again.
    pub ports: usize,
    /// Whether rules were missing or altered, and are as they should be again.
    pub rules: bool,
    /// Ports that lead to another pod by now, which keeps them.
    pub taken: Vec<(HostPort, IpAddr)>,
}

/// What one family lacks.
struct Missing {
    family: Family,
    frames: Vec<Frame>,
    ports: Vec<HostPort>,
}

/// Others may write between the look and the transaction, which then is
/// refused as a whole.
const ATTEMPTS: usize = 3;

impl Firewall {
    /// Makes sure that these ports lead to their pods, all in one transaction.
    /// Reads first, so that calling it again changes nothing.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn restore_host_ports(&mut self, wanted: &[HostPort]) -> Result<Restored, FirewallError> {
        let mut attempt = 1;
        loop {
            let mut restored = Restored::default();
            let mut missing = Vec::new();
            for family in FAMILIES {
                missing.extend(self.missing(family, wanted, &mut restored)?);
            }
            let frames: Vec<Frame> = missing.iter().flat_map(|m| m.frames.clone()).collect();
            let Some(first) = missing.first() else {
                return Ok(restored);
            };
            match self.write(first.family, &batch(frames)) {
                Ok(()) => {}
                Err(FirewallError::Write { source, .. })
                    if attempt < ATTEMPTS && (source.is_exists() || source.is_busy()) =>
                {
                    attempt += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            for Missing { family, ports, .. } in &missing {
                let ports: Vec<&HostPort> = ports.iter().collect();
                restored.ports += ports.len();
                self.redirect_flows(*family, &ports)?;
            }
            return Ok(restored);
        }
    }

    fn missing(
        &mut self,
        family: Family,
        wanted: &[HostPort],
        restored: &mut Restored,
    ) -> Result<Option<Missing>, FirewallError> {
        let wanted: BTreeSet<HostPort> = wanted
            .iter()
            .copied()
            .filter(|port| port.family() == family)
            .collect();
        if wanted.is_empty() {
            return Ok(None);
        }
        let rules = ruleset(family);
        let mut frames = Vec::new();
        if !agree(&self.marks(family, true)?, &CHAINS, Some(&rules)) {
            frames = replace_frames(&rules);
            restored.rules = true;
        }
        let have = self.host_port_elements(family)?;
        let ports = lacking(family, &wanted, &have, &mut restored.taken);
        let keepers: BTreeSet<IpAddr> = wanted.iter().map(|port| port.pod).collect();
        let hairpins = keepers.into_iter().map(hairpin);
        let elements = ports.iter().map(HostPort::element).chain(hairpins);
        let elements: Vec<Element> = elements.filter(|want| !holds(&have, want)).collect();
        frames.extend(add_elements(family, &elements));
        Ok((!frames.is_empty()).then_some(Missing {
            family,
            frames,
            ports,
        }))
    }
}

/// Ports that nobody has. One that leads elsewhere is told and left.
fn lacking(
    family: Family,
    wanted: &BTreeSet<HostPort>,
    have: &[Element],
    taken: &mut Vec<(HostPort, IpAddr)>,
) -> Vec<HostPort> {
    let mut lacking: Vec<HostPort> = Vec::new();
    for port in wanted {
        let want = port.element();
        let there = have
            .iter()
            .find(|e| (e.set, &e.key) == (want.set, &want.key));
        let twin = lacking
            .iter()
            .find(|p| p.element().key == want.key && p.element().set == want.set);
        match (there, twin) {
            (None, None) => lacking.push(*port),
            (Some(element), _) if element.data == want.data => {}
            (Some(element), _) => {
                taken.extend(pod_of(family, &element.data).map(|pod| (*port, pod)));
            }
            (None, Some(other)) => taken.push((*port, other.pod)),
        }
    }
    lacking
}

fn holds(have: &[Element], want: &Element) -> bool {
    have.iter()
        .any(|e| (e.set, &e.key, &e.data) == (want.set, &want.key, &want.data))
}
