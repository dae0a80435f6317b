//! The rule that sends probes by their own table.

use std::collections::BTreeSet;

use seaway_netlink::{Family, RouteProtocol, Rule, Socket};

use super::{Changes, PodNetworkError, of_both};
use crate::{Desired, PROBE_MARK, PROBE_PRIORITY, PROBE_TABLE};

/// One for each family that has anything to probe.
pub(super) fn wanted(want: &Desired) -> BTreeSet<Rule> {
    let families = want.probes.iter().map(|probe| probe.family);
    families.map(rule).collect()
}

fn rule(family: Family) -> Rule {
    Rule {
        family,
        priority: PROBE_PRIORITY,
        mark: Some(PROBE_MARK),
        table: PROBE_TABLE,
        protocol: RouteProtocol::SEAWAY,
    }
}

/// Adds what is missing, and removes what is ours and not wanted.
pub(super) fn apply(
    socket: &mut Socket,
    want: &BTreeSet<Rule>,
    changes: &mut Changes,
) -> Result<(), PodNetworkError> {
    let have = of_both(|family| socket.rules(family))?;
    let own: BTreeSet<Rule> = have
        .into_iter()
        .filter(|rule| rule.protocol == RouteProtocol::SEAWAY)
        .collect();
    for rule in want.difference(&own) {
        changes.wrote(socket.rule_add(rule));
    }
    for rule in own.difference(want) {
        changes.removed(socket.remove_rule(rule));
    }
    Ok(())
}
