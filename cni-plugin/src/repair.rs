//! `repair`: what live pods have on the host, in its routes and in its firewall,
//! written again where somebody has flushed it.

mod links;

use std::net::IpAddr;

use seaway_firewall::{Change, Firewall, FirewallError, HostPort};
use seaway_netlink::Socket;
use serde::Serialize;

use self::links::Host;
use crate::attach::netlink;
use crate::error::Error;
use crate::ipam::{Attachments, BusyOnes, Key, Record, Store};
use crate::plan::Identity;
use crate::runtime::recorded_host_ports;
use crate::sweep::Veths;
use crate::upkeep::{Options, Report, told};

/// What was done.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Repaired {
    /// hostPorts that were missing.
    host_ports: usize,
    /// Whether the rules for them were.
    rules: bool,
    /// Whether the accepts in a FORWARD that drops were.
    forward: bool,
    /// Interfaces of pods that were down.
    links: usize,
    /// Routes, neighbour entries and gateway addresses that were missing.
    routes: usize,
    /// Kernel settings of pods' interfaces that somebody had altered.
    settings: usize,
    /// What was passed over, and why.
    skipped: Vec<String>,
    failures: Vec<String>,
}

impl Report for Repaired {
    fn failed(&self) -> bool {
        !self.failures.is_empty()
    }
}

/// One network that has records.
struct Found {
    network: String,
    all: Attachments,
    store: Store,
}

/// One network's records and the locks on those that are worked on.
struct Held {
    network: String,
    now: Attachments,
    busy: BusyOnes,
}

/// Writes again what is missing, of all networks or of one. What is there is
/// left as it is, so this can be repeated at will. A network whose records cannot be read or
/// locked keeps no other from it.
pub(crate) fn repair(options: &Options) -> Result<Repaired, Error> {
    let mut report = Repaired::default();
    let mut socket = Socket::open().map_err(netlink("open a netlink socket"))?;
    let found = find(options, &mut report)?;
    let host = Host::look(&mut socket, found.iter().map(|one| &one.all))?;
    // The locks live until all is written.
    let mut held = Vec::new();
    for one in &found {
        match one.hold(&host) {
            Ok(one) => held.push(one),
            Err(error) => report.left_out(&one.network, &error),
        }
    }
    // Anew, since calls may have ended meanwhile.
    let host = Host::look(&mut socket, held.iter().map(|one| &one.now))?;
    for one in &held {
        let of = (one.network.as_str(), &one.now, &one.busy);
        links::restore(&mut socket, &host, of, &mut report);
    }
    firewall(&held, host.veths(), &mut report)?;
    Ok(report)
}

fn find(options: &Options, report: &mut Repaired) -> Result<Vec<Found>, Error> {
    let networks = match &options.network {
        Some(network) => vec![network.clone()],
        None => Store::networks(&options.data_dir)?,
    };
    let mut found = Vec::new();
    for network in networks {
        let store = Store::open(&options.data_dir, &network)?;
        match store.attachments() {
            // A folder without records of ours may be anybody's, and gets no locks.
            Ok(all) if all.is_empty() => {}
            Ok(all) => found.push(Found {
                network,
                all,
                store,
            }),
            Err(error) => report.left_out(&network, &error.into()),
        }
    }
    Ok(found)
}

impl Found {
    fn hold(&self, host: &Host) -> Result<Held, Error> {
        let network = self.network.clone();
        let wanting = self
            .all
            .iter()
            .filter(|(key, all)| may_have_ports(all) || host.lacks(&network, key, all));
        let busy = self.store.busy_ones(wanting.map(|(key, _)| key))?;
        let now = self.store.attachments()?;
        Ok(Held { network, now, busy })
    }
}

impl Repaired {
    fn left_out(&mut self, network: &str, error: &Error) {
        let text = format!("repair network {network}: {}", told(error));
        self.failures.push(text);
    }
}

fn firewall(held: &[Held], veths: &Veths, report: &mut Repaired) -> Result<(), Error> {
    let mut firewall = match Firewall::open() {
        // A kernel without netfilter has had nothing of ours.
        Err(FirewallError::Open { source }) if source.is_unsupported() => return Ok(()),
        outcome => outcome.map_err(firewall_error("repair the firewall"))?,
    };
    let mut live = held.iter().flat_map(|one| one.now.keys());
    if live.any(|key| veths.has(key)) {
        forward(&mut firewall, report);
    }
    let mut ports = Vec::new();
    for one in held {
        ports.extend(wanted(&one.now, &one.busy, veths, report));
    }
    restore(&mut firewall, &ports, report);
    Ok(())
}

fn forward(firewall: &mut Firewall, report: &mut Repaired) {
    for program in Firewall::missing_programs() {
        let why = "its tables are in use, and there is no such program to look at FORWARD";
        report.skipped.push(format!("{program}: {why}"));
    }
    match firewall.ensure_forward_accept() {
        Ok(change) => report.forward = change == Change::Changed,
        Err(error) => {
            let error = firewall_error("accept forwarded packets")(error);
            report.failures.push(told(&error));
        }
    }
}

fn restore(firewall: &mut Firewall, ports: &[HostPort], report: &mut Repaired) {
    match firewall.restore_host_ports(ports) {
        Ok(restored) => {
            report.host_ports = restored.ports;
            report.rules = restored.rules;
            let taken = restored.taken.iter();
            report.skipped.extend(taken.map(|(port, holder)| {
                format!("hostPort {port} of {} leads to {holder} by now", port.pod)
            }));
        }
        Err(error) => {
            let error = firewall_error("write the host's ports again")(error);
            report.failures.push(told(&error));
        }
    }
}

/// The ports of attachments that are whole and that nobody is working on.
fn wanted(
    now: &Attachments,
    busy: &BusyOnes,
    veths: &Veths,
    report: &mut Repaired,
) -> Vec<HostPort> {
    let mut ports = Vec::new();
    for (key, records) in now.iter().filter(|(key, _)| busy.contains(key)) {
        if !veths.has(key) {
            continue;
        }
        for (address, record) in records {
            let own = record
                .as_ref()
                .ok_or_else(|| String::from("the record cannot be read"))
                .and_then(|record| recorded_host_ports(&record.host_ports, *address));
            match own {
                Ok(own) => ports.extend(own),
                Err(why) => report.skipped.push(format!(
                    "{address} of container {}: {why}",
                    key.container_id
                )),
            }
        }
    }
    ports
}

/// A record that cannot be read is passed over later, and told.
fn may_have_ports(records: &[(IpAddr, Option<Record>)]) -> bool {
    records.iter().any(|(_, record)| {
        record
            .as_ref()
            .is_none_or(|record| !record.host_ports.is_empty())
    })
}

fn firewall_error(step: &'static str) -> impl FnOnce(FirewallError) -> Error {
    move |source| Error::Firewall { step, source }
}

impl Veths {
    /// Whether the attachment has its interface.
    fn has(&self, key: &Key) -> bool {
        let identity = Identity::of(&key.container_id, &key.ifname);
        self.get(&identity.host_ifname)
            .is_some_and(|veth| !veth.is_dead())
    }
}
