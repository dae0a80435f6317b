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

use crate::fate::Fate;
use crate::firewall::{Change, FAMILIES, FirewallError};
use crate::forward::{ATTEMPTS, COMMENTS, POD_LINKS};
use crate::passage::{Forwarding, Notable, Passage, ours};

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
        Some(program) => {
            let chain = chain(&mut |words| run(family, &program, words))?;
            Ok(chain.forwarding())
        }
    }
}

/// As [`Firewall::ensure_forward_accept`](crate::Firewall::ensure_forward_accept).
pub(crate) fn ensure_accept(family: Family) -> Result<Change, FirewallError> {
    let Some(program) = usable(family) else {
        return Ok(Change::Unchanged);
    };
    let outcome = ensure_by(&mut |words| run(family, &program, words))?;
    outcome.ok_or_else(|| FirewallError::Legacy {
        program: name(family),
        why: "others change FORWARD all the time".to_owned(),
    })
}

/// Runs the program of one family with these words, and says what it has printed.
type Iptables<'a> = &'a mut dyn FnMut(&[String]) -> Result<String, FirewallError>;

/// Reading and writing are processes of their own, and others may come between them, so what
/// was written is looked at. `None`: it never was where it belongs, and is not there any more.
fn ensure_by(iptables: Iptables<'_>) -> Result<Option<Change>, FirewallError> {
    let mut change = Change::Unchanged;
    let mut found = chain(iptables)?;
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        if found.forwarding() != Forwarding::Dropped {
            return Ok(Some(change));
        }
        let missing = found.missing();
        let written = write(iptables, &found);
        let now = chain(iptables)?;
        match written {
            Ok(()) if now.are_last(&missing) => return Ok(Some(Change::Changed)),
            // Nobody has changed anything, so it would fail again.
            Err(error) if now == found => return Err(error),
            outcome => failure = outcome.err(),
        }
        change = Change::Changed;
        for (comment, _) in ours(&now.rules).filter(|(comment, _)| missing.contains(comment)) {
            delete(iptables, comment)?;
        }
        found = chain(iptables)?;
    }
    if found.forwarding() != Forwarding::Dropped {
        return Ok(Some(change));
    }
    failure.map_or(Ok(None), Err)
}

/// Writes what is missing before the end of the chain, where that was when it was read.
fn write(iptables: Iptables<'_>, chain: &Passage<usize>) -> Result<(), FirewallError> {
    for (comment, _) in chain.idle() {
        delete(iptables, comment)?;
    }
    let missing = chain.missing();
    let missing = RULES.iter().filter(|rule| missing.contains(&rule.comment));
    // What was deleted came behind that number, what is added shifts it.
    for (shift, rule) in missing.enumerate() {
        let words = match chain.before() {
            Some(before) => rule.words(&["-I", "FORWARD", &(before + shift).to_string()]),
            None => rule.words(&["-A", "FORWARD"]),
        };
        iptables(&words)?;
    }
    Ok(())
}

/// Takes the accepts away; absent is fine.
pub(crate) fn remove_accept(family: Family) -> Result<Change, FirewallError> {
    let Some(program) = usable(family) else {
        return Ok(Change::Unchanged);
    };
    let iptables: Iptables<'_> = &mut |words| run(family, &program, words);
    let mut change = Change::Unchanged;
    for (comment, _) in ours(&chain(iptables)?.rules) {
        delete(iptables, comment)?;
        change = Change::Changed;
    }
    Ok(change)
}

/// Deletes the first one with this comment. By what it says: numbers change with every rule
/// that somebody else takes away meanwhile.
fn delete(iptables: Iptables<'_>, comment: &str) -> Result<(), FirewallError> {
    for rule in RULES.iter().filter(|rule| rule.comment == comment) {
        iptables(&rule.words(&["-D", "FORWARD"]))?;
    }
    Ok(())
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
    /// Behind a verb and where it acts.
    fn words(&self, place: &[&str]) -> Vec<String> {
        let links = format!("{POD_LINKS}+");
        let rule = [
            self.direction,
            &links,
            "-m",
            "comment",
            "--comment",
            self.comment,
            "-j",
            "ACCEPT",
        ];
        let words = place.iter().chain(&rule);
        words.map(|word| (*word).to_owned()).collect()
    }
}

/// FORWARD as it is; its rules are named by their numbers.
fn chain(iptables: Iptables<'_>) -> Result<Passage<usize>, FirewallError> {
    let listed = iptables(&["-S".to_owned(), "FORWARD".to_owned()])?;
    Ok(read(&listed))
}

/// What `-S FORWARD` has printed.
fn read(listed: &str) -> Passage<usize> {
    let rules = listed
        .lines()
        .filter_map(|line| line.strip_prefix("-A FORWARD "));
    let notable = |(number, rule): (usize, &str)| {
        let has = |comment: &str| rule.contains(&format!("--comment \"{comment}\" "));
        match COMMENTS.into_iter().find(|comment| has(comment)) {
            Some(comment) => Notable::Ours(comment, number),
            None => fate(rule).map_or(Notable::Other, |fate| Notable::End(fate, number)),
        }
    };
    Passage {
        policy_drops: listed.lines().any(|line| line == "-P FORWARD DROP"),
        rules: (1..).zip(rules).map(notable).collect(),
    }
}

/// What becomes of every packet that comes to a rule, which is told by its words behind
/// `-A FORWARD`. `None`: it has a condition, or packets go on behind it.
fn fate(rule: &str) -> Option<Fate> {
    let mut rest = rule;
    while let Some(comment) = rest.strip_prefix("-m comment --comment ") {
        rest = behind_word(comment)?;
    }
    match rest.strip_prefix("-j ")?.split(' ').next()? {
        "ACCEPT" => Some(Fate::Accept),
        "DROP" | "REJECT" => Some(Fate::Drop),
        "RETURN" => Some(Fate::Policy),
        _ => None,
    }
}

/// What follows a word that iptables has put between quotes if it needs them.
fn behind_word(text: &str) -> Option<&str> {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split_once(' ').map(|(_, rest)| rest);
    };
    let mut escaped = false;
    let end = quoted.find(|letter: char| {
        let is_end = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        is_end
    })?;
    quoted.get(end + 1..)?.strip_prefix(' ')
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
mod tests;
