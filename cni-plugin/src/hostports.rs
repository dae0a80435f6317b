//! The host's ports of one attachment, in the firewall.

use std::collections::BTreeSet;
use std::net::IpAddr;

use seaway_firewall::{Firewall, FirewallError, HostPort};
use seaway_netlink::{Family, Socket};

use crate::attach::{exists, netlink};
use crate::config::Config;
use crate::error::Error;
use crate::ipam::{Extra, Record, Store};
use crate::plan::{Identity, Plan};
use crate::sweep::forget_routed;
use crate::undo::Undo;

/// Opens the ports that the runtime wants, once the pod can be reached.
pub(crate) fn open(config: &Config, plan: &Plan, undo: &mut Undo<'_>) -> Result<(), Error> {
    let ports = config.runtime.host_ports(&plan.addresses)?;
    if ports.is_empty() {
        return Ok(());
    }
    let mut firewall = Firewall::open().map_err(failed("open the host's ports"))?;
    // Also what a refused family leaves of the other one.
    let addresses = plan.addresses.clone();
    undo.push("close the host's ports", move || remove(&addresses));
    // Each attempt but the last one removes a stale port.
    for _ in &ports {
        match firewall.add_host_ports(&ports) {
            Err(FirewallError::PortTaken { port, holder }) => {
                refuse_live(config, port, holder)?;
                remove(&[holder])?;
                // One family may have been done.
                remove(&plan.addresses)?;
            }
            outcome => return outcome.map_err(failed("open the host's ports")),
        }
    }
    firewall
        .add_host_ports(&ports)
        .map_err(failed("open the host's ports"))
}

/// Pods' packets must pass a FORWARD that drops at its end, by its policy or by a rule. It is
/// the node's business and not this pod's, so a failure is only told.
pub(crate) fn accept_forwarded(families: &[Family]) {
    let accepted =
        Firewall::open().and_then(|mut firewall| firewall.ensure_forward_accept_for(families));
    if let Err(error) = accepted {
        let error = failed("accept forwarded packets")(error);
        eprintln!(
            "Packets of pods may be dropped: {error}: {}",
            error.details()
        );
    }
}

/// Closes the ports that lead to an attachment's addresses. A record that
/// cannot be read may have had some.
pub(crate) fn close(records: &[(IpAddr, Option<Record>)]) -> Result<(), Error> {
    let may_have_ports = |record: &Option<Record>| {
        record
            .as_ref()
            .is_none_or(|record| record.extras.contains(&Extra::HostPorts))
    };
    let addresses: Vec<IpAddr> = records
        .iter()
        .filter(|(_, record)| may_have_ports(record))
        .map(|(address, _)| *address)
        .collect();
    if addresses.is_empty() {
        Ok(())
    } else {
        remove(&addresses)
    }
}

/// Names the first port that does not lead to the pod.
pub(crate) fn check(config: &Config, addresses: &[IpAddr]) -> Result<(), Error> {
    let ports: Vec<HostPort> = config.runtime.host_ports(addresses)?;
    if ports.is_empty() {
        return Ok(());
    }
    let look = || failed("look at the host's ports");
    let mut firewall = Firewall::open().map_err(look())?;
    match firewall.missing_host_port(&ports).map_err(look())? {
        None => Ok(()),
        Some(port) => Err(Error::Check {
            what: format!("hostPort {port} does not lead to {}", port.pod),
        }),
    }
}

/// A port is stale when nobody has the address that it leads to, or when who
/// has it has no interface any more: a port is opened after that is made, and
/// closed after it has gone. DEL may never have come (K1 of the bug log).
fn refuse_live(config: &Config, port: HostPort, holder: IpAddr) -> Result<(), Error> {
    let store = Store::open(&config.network.data_dir, &config.network.name)?;
    // Ports are the node's, so the holder may be of another network, and its address that of
    // a dead pod of this one as well.
    let mut held = store.held_by_all()?;
    held.retain(|held| held.address == holder);
    for held in &held {
        let identity = Identity::of(&held.key.container_id, &held.key.ifname);
        if exists(&identity.host_ifname)? {
            return Err(taken(port, holder, &held.key.container_id));
        }
    }
    if lives_without_record(holder)? {
        return Err(taken(port, holder, "without a record"));
    }
    Ok(())
}

fn lives_without_record(holder: IpAddr) -> Result<bool, Error> {
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    let mut pods = BTreeSet::from([holder]);
    forget_routed(&mut host, &mut pods)?;
    if !pods.is_empty() {
        return Ok(false);
    }
    // Its DEL may have come meanwhile.
    let look = || failed("look at the host's ports");
    let mut firewall = Firewall::open().map_err(look())?;
    let pods = firewall.host_port_pods().map_err(look())?;
    Ok(pods.contains(&holder))
}

fn taken(port: HostPort, holder: IpAddr, container_id: &str) -> Error {
    Error::HostPortTaken {
        port,
        holder,
        container_id: container_id.to_owned(),
    }
}

pub(crate) fn remove(addresses: &[IpAddr]) -> Result<(), Error> {
    let mut firewall = match Firewall::open() {
        // A kernel without netfilter has no ports of ours.
        Err(FirewallError::Open { source }) if source.is_unsupported() => return Ok(()),
        outcome => outcome.map_err(failed("close the host's ports"))?,
    };
    firewall
        .remove_host_ports_of(addresses)
        .map(drop)
        .map_err(failed("close the host's ports"))
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(FirewallError) -> Error {
    move |source| Error::Firewall { step, source }
}
