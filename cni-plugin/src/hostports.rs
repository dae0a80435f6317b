//! The host's ports of one attachment, in the firewall.

use std::net::IpAddr;

use seaway_firewall::{Firewall, FirewallError, HostPort};

use crate::config::Config;
use crate::error::Error;
use crate::ipam::{Extra, Record, Store};
use crate::plan::Plan;
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

/// Pods' packets must pass a FORWARD whose policy is to drop. It is the node's
/// business and not this pod's, so a failure is only told.
pub(crate) fn accept_forwarded() {
    let accepted = Firewall::open().and_then(|mut firewall| firewall.ensure_forward_accept());
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

/// A port that leads to an address that nobody has is stale: its pod went
/// without us.
fn refuse_live(config: &Config, port: HostPort, holder: IpAddr) -> Result<(), Error> {
    let store = Store::open(&config.network.data_dir, &config.network.name)?;
    let held = store.holders()?;
    match held.into_iter().find(|held| held.address == holder) {
        Some(held) => Err(Error::HostPortTaken {
            port,
            holder,
            container_id: held.key.container_id,
        }),
        None => Ok(()),
    }
}

fn remove(addresses: &[IpAddr]) -> Result<(), Error> {
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

fn failed(step: &'static str) -> impl FnOnce(FirewallError) -> Error {
    move |source| Error::Firewall { step, source }
}
