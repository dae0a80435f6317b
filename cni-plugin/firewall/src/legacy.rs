//! FORWARD of iptables-legacy, where that is in use.
//!
//! The two flavours of iptables are two rule sets in one kernel, and a packet
//! must pass both. The older one has no netlink: its own program is run, and
//! only in a namespace that has its `filter` table already, since the program
//! would load modules and make the table otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;

use seaway_netlink::Family;
use seaway_netlink::netns::own_proc;

use crate::firewall::{Change, FAMILIES, FirewallError};
use crate::forward::{COMMENTS, Forwarding, POD_LINKS};

/// Where programs of the administrator are; a container runtime may start us
/// without a PATH.
const FOLDERS: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];
/// Seconds to wait for the lock that iptables' processes share.
const WAIT: &str = "5";

/// Programs that are missing though their tables are in use: what FORWARD does
/// there can neither be seen nor changed.
pub(crate) fn missing_programs() -> Vec<&'static str> {
    let families = FAMILIES.into_iter().filter(|family| is_in_use(*family));
    families
        .filter(|family| program(*family).is_none())
        .map(name)
        .collect()
}

/// What FORWARD does in the calling thread's network namespace.
pub(crate) fn forwarding(family: Family) -> Result<Forwarding, FirewallError> {
    match usable(family) {
        None => Ok(Forwarding::Free),
        Some(program) => Ok(judge(&listed(family, &program)?)),
    }
}

/// As [`Firewall::ensure_forward_accept`](crate::Firewall::ensure_forward_accept).
pub(crate) fn ensure_accept(family: Family) -> Result<Change, FirewallError> {
    let Some(program) = usable(family) else {
        return Ok(Change::Unchanged);
    };
    let listed = listed(family, &program)?;
    if judge(&listed) != Forwarding::Dropped {
        return Ok(Change::Unchanged);
    }
    for rule in RULES.iter().filter(|rule| !has(&listed, rule.comment)) {
        run(family, &program, &rule.words("-A"))?;
    }
    Ok(Change::Changed)
}

/// Takes the accepts away; absent is fine.
pub(crate) fn remove_accept(family: Family) -> Result<Change, FirewallError> {
    let Some(program) = usable(family) else {
        return Ok(Change::Unchanged);
    };
    let listed = listed(family, &program)?;
    let mut change = Change::Unchanged;
    for rule in RULES.iter().filter(|rule| has(&listed, rule.comment)) {
        run(family, &program, &rule.words("-D"))?;
        change = Change::Changed;
    }
    Ok(change)
}

struct Rule {
    /// `-i` or `-o`.
    direction: &'static str,
    comment: &'static str,
}

const RULES: [Rule; 2] = [
    Rule {
        direction: "-i",
        comment: COMMENTS[0],
    },
    Rule {
        direction: "-o",
        comment: COMMENTS[1],
    },
];

impl Rule {
    fn words(&self, verb: &str) -> Vec<String> {
        let links = format!("{POD_LINKS}+");
        let words = [
            verb,
            "FORWARD",
            self.direction,
            &links,
            "-m",
            "comment",
            "--comment",
            self.comment,
            "-j",
            "ACCEPT",
        ];
        words.map(str::to_owned).to_vec()
    }
}

/// What `-S FORWARD` has printed.
fn judge(listed: &str) -> Forwarding {
    if !listed.lines().any(|line| line == "-P FORWARD DROP") {
        Forwarding::Free
    } else if RULES.iter().all(|rule| has(listed, rule.comment)) {
        Forwarding::Accepted
    } else {
        Forwarding::Dropped
    }
}

fn has(listed: &str, comment: &str) -> bool {
    let words = format!("--comment \"{comment}\" ");
    listed.lines().any(|line| line.contains(&words))
}

fn listed(family: Family, program: &Path) -> Result<String, FirewallError> {
    run(family, program, &["-S".to_owned(), "FORWARD".to_owned()])
}

fn run(family: Family, program: &Path, words: &[String]) -> Result<String, FirewallError> {
    let failed = |why| FirewallError::Legacy {
        program: name(family),
        why,
    };
    let output = Command::new(program)
        .args(["-w", WAIT])
        .args(words)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(failed(format!("{}: {}", output.status, said.trim())))
    }
}

fn usable(family: Family) -> Option<PathBuf> {
    is_in_use(family).then(|| program(family)).flatten()
}

/// Whether the calling thread's network namespace has the `filter` table. The
/// file is absent where the kernel does not know this flavour.
pub(crate) fn is_in_use(family: Family) -> bool {
    let file = match family {
        Family::V4 => "net/ip_tables_names",
        Family::V6 => "net/ip6_tables_names",
    };
    std::fs::read_to_string(own_proc().join(file))
        .is_ok_and(|names| names.lines().any(|name| name == "filter"))
}

fn program(family: Family) -> Option<PathBuf> {
    let mut places = FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join(name(family)));
    places.find(|path| path.exists())
}

fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables-legacy",
        Family::V6 => "ip6tables-legacy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_understood() {
        let from = "-A FORWARD -i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT\n";
        let to = "-A FORWARD -o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT\n";
        let drop = "-P FORWARD DROP\n";
        for (listed, want) in [
            (String::from("-P FORWARD ACCEPT\n"), Forwarding::Free),
            (drop.to_owned(), Forwarding::Dropped),
            (format!("{drop}{from}"), Forwarding::Dropped),
            (format!("{drop}{from}{to}"), Forwarding::Accepted),
        ] {
            assert_eq!(judge(&listed), want, "{listed}");
        }
    }
}
