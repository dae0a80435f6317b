//! The handle's verbs for hostPorts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use seaway_netlink::{Family, NetlinkError, Socket};

use crate::conntrack::{Flow, forget, lasts};
use crate::firewall::{FAMILIES, Firewall, FirewallError, agree};
use crate::hostports::{CHAINS, HostPort, hairpin, ruleset};
use crate::message::{batch, replace};
use crate::removal::is_sign;
use crate::set::{Element, add_new_elements};

impl Firewall {
    /// Leads these ports to their pods. Flows of UDP and SCTP that others have
    /// answered so far come to the pod from now on.
    ///
    /// # Errors
    /// [`FirewallError::PortTaken`] when one of them leads to another pod. A
    /// family that failed is as it was before; IPv4 comes first.
    pub fn add_host_ports(&mut self, ports: &[HostPort]) -> Result<(), FirewallError> {
        for family in FAMILIES {
            let ports: Vec<&HostPort> = ports.iter().filter(|p| p.family() == family).collect();
            if ports.is_empty() {
                continue;
            }
            let rules = ruleset(family);
            let marks = self.marks(family, true)?;
            if !agree(&marks, &CHAINS, Some(&rules)) {
                self.write(family, &replace(&rules))?;
            }
            let pods: BTreeSet<IpAddr> = ports.iter().map(|port| port.pod).collect();
            let elements = ports.iter().map(|port| port.element());
            let elements: Vec<Element> = elements.chain(pods.into_iter().map(hairpin)).collect();
            let frames = add_new_elements(family, &elements);
            match self.wire.transact(&batch(frames)) {
                Ok(_) => {}
                Err(source) => return Err(self.why_refused(family, &ports, source)),
            }
            self.redirect_flows(family, &ports)?;
        }
        Ok(())
    }

    /// The first of these ports that does not lead to its pod.
    pub fn missing_host_port(
        &mut self,
        ports: &[HostPort],
    ) -> Result<Option<HostPort>, FirewallError> {
        for family in FAMILIES {
            let wanted: Vec<&HostPort> = ports.iter().filter(|p| p.family() == family).collect();
            let Some(first) = wanted.first() else {
                continue;
            };
            if !agree(&self.marks(family, true)?, &CHAINS, Some(&ruleset(family))) {
                return Ok(Some(**first));
            }
            let have = self.host_port_elements(family)?;
            let is_missing = |port: &&&HostPort| {
                let want = port.element();
                !have
                    .iter()
                    .any(|e| (e.set, &e.key, &e.data) == (want.set, &want.key, &want.data))
            };
            if let Some(port) = wanted.iter().find(is_missing) {
                return Ok(Some(**port));
            }
        }
        Ok(None)
    }

    /// The pods that ports of the host lead to.
    pub fn host_port_pods(&mut self) -> Result<BTreeSet<IpAddr>, FirewallError> {
        self.pods_by(|element| &element.data)
    }

    /// The same, and those whose ports are closed and whose flows somebody was killed before he
    /// could forget.
    pub fn host_port_traces(&mut self) -> Result<BTreeSet<IpAddr>, FirewallError> {
        self.pods_by(|element| {
            if is_sign(element) {
                &element.key
            } else {
                &element.data
            }
        })
    }

    /// `address` is where an element begins with a pod's address.
    fn pods_by(
        &mut self,
        address: impl Fn(&Element) -> &[u8],
    ) -> Result<BTreeSet<IpAddr>, FirewallError> {
        let mut pods = BTreeSet::new();
        for family in FAMILIES {
            let elements = self.host_port_elements(family)?;
            pods.extend(elements.iter().filter_map(|e| pod_of(family, address(e))));
        }
        Ok(pods)
    }

    fn why_refused(
        &mut self,
        family: Family,
        ports: &[&HostPort],
        source: NetlinkError,
    ) -> FirewallError {
        // An element with the same key and other data is "busy".
        if (source.is_exists() || source.is_busy())
            && let Ok(have) = self.host_port_elements(family)
        {
            for port in ports {
                let want = port.element();
                let same = |e: &&Element| (e.set, &e.key) == (want.set, &want.key);
                if let Some(holder) = have.iter().find(same).and_then(|e| pod_of(family, &e.data)) {
                    return FirewallError::PortTaken {
                        port: **port,
                        holder,
                    };
                }
            }
        }
        FirewallError::Write { family, source }
    }

    pub(crate) fn redirect_flows(
        &mut self,
        family: Family,
        ports: &[&HostPort],
    ) -> Result<(), FirewallError> {
        let lasting = |port: &&&HostPort| lasts(port.protocol.number());
        let ports: Vec<&&HostPort> = ports.iter().filter(lasting).collect();
        if ports.is_empty() {
            return Ok(());
        }
        let flows = |source| FirewallError::Flows { source };
        let local = Socket::open()
            .and_then(|mut socket| socket.addresses(family, None))
            .map_err(flows)?;
        let local: BTreeSet<IpAddr> = local.iter().map(|a| a.network.ip()).collect();
        let misses = |port: &HostPort, flow: &Flow| {
            let one = port.host_ip.map(|ip| BTreeSet::from([ip]));
            flow.misses(port, one.as_ref().unwrap_or(&local))
        };
        forget(&mut self.wire, family, |flow| {
            ports.iter().any(|port| misses(port, flow))
        })
        .map(drop)
        .map_err(flows)
    }
}

pub(crate) fn pod_of(family: Family, data: &[u8]) -> Option<IpAddr> {
    match family {
        Family::V4 => data.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        Family::V6 => data.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
    }
}
