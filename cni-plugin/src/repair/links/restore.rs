//! Writes what live pods lack.

use seaway_netlink::{NetlinkError, Request, Socket};

use super::{Host, Missing};
use crate::error::Error;
use crate::ipam::{Attachments, BusyOnes};
use crate::repair::Repaired;
use crate::sysctl::Setting;
use crate::upkeep::told;

/// Makes again what live pods of a network lack, but for those that somebody is
/// working on.
pub(in crate::repair) fn restore(
    socket: &mut Socket,
    host: &Host,
    (network, now, busy): (&str, &Attachments, &BusyOnes),
    report: &mut Repaired,
) {
    for (key, records) in now.iter().filter(|(key, _)| busy.contains(key)) {
        let mut missing = host.missing(network, key, records);
        report.skipped.append(&mut missing.told);
        // First: while IPv6 is off on a link, it takes neither address nor route.
        let mut failed = set(&missing.settings, report);
        let outcome = write(socket, &missing, report);
        failed.extend(outcome.err().map(|source| Error::Netlink {
            step: "make the host's route to a pod again",
            source,
        }));
        let failures = failed.iter().map(told);
        let failures = failures.map(|why| format!("container {}: {why}", key.container_id));
        report.failures.extend(failures);
    }
}

/// Goes on after failures, and returns them.
fn set(settings: &[Setting], report: &mut Repaired) -> Vec<Error> {
    let mut failed = Vec::new();
    for setting in settings {
        match setting.set() {
            Ok(()) => report.settings += 1,
            Err(error) => failed.push(error),
        }
    }
    failed
}

fn write(
    socket: &mut Socket,
    missing: &Missing,
    report: &mut Repaired,
) -> Result<(), NetlinkError> {
    if let Some(index) = missing.link {
        socket.link_set_up(index)?;
        report.links += 1;
    }
    if let Some(address) = &missing.address {
        socket.ensure_address(address)?;
        report.routes += 1;
    }
    for route in &missing.routes {
        // Exclusive: a route that exists by now belongs to a pod that lives.
        socket.route_add(route)?;
        report.routes += 1;
    }
    if let Some(route) = &missing.link_local {
        socket.execute(&[Request::route_append(route)])?;
        report.routes += 1;
    }
    for neighbour in &missing.neighbours {
        socket.neighbour_replace(neighbour)?;
        report.routes += 1;
    }
    Ok(())
}
