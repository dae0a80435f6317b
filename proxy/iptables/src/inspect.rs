//! The rules that packets for one address meet: as they are, and as they should be.
//!
//! The way is walked rule by rule from our jumps. Of a rule's conditions only destination,
//! protocol and port are looked at, as they are what the trees are sorted by; whatever else
//! a rule asks for, some packet may have it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ipnetwork::IpNetwork;
use seaway_proxy_core::desired::{Family, Protocol};
use seaway_proxy_core::explain::kernel::{Deviation, Difference, Inspection, Subject, compare};

use crate::rendered::{
    FORWARD, INVALID, LOCALHOST, POSTROUTING, Rendered, SERVICES, Table, is_ours,
};
use crate::sets::Sets;

/// Where the ways begin; the chain of health checks concerns no Service port.
const ENTRIES: [&str; 5] = [SERVICES, POSTROUTING, FORWARD, INVALID, LOCALHOST];

pub(crate) fn inspect(have: &Rendered, want: &Rendered, subject: &Subject) -> Inspection {
    let family = Family::of(subject.target.addr.ip());
    let (have, want) = (have.family(family), want.family(family));
    let mut found = Inspection::default();
    for (name, have, want) in [
        ("nat", &have.nat, &want.nat),
        ("filter", &have.filter, &want.filter),
    ] {
        push_jumps(&mut found, name, have, want);
        push_chains(&mut found, name, have, want, subject);
    }
    push_sets(&mut found, &have.sets, &want.sets);
    found
}

/// Jumps in chains that are not ours, as lines.
fn jumps(table: &Table) -> Vec<String> {
    let leads = |rule: &str| target(rule).is_some_and(|chain| ENTRIES.contains(&chain));
    let jumps = table.jumps.iter().filter(|(_, rule)| leads(rule));
    jumps
        .map(|(chain, rule)| format!("-A {chain} {rule}"))
        .collect()
}

fn push_jumps(found: &mut Inspection, name: &str, have: &Table, want: &Table) {
    let (have, want) = (jumps(have), jumps(want));
    let place = format!("{name}, the built-in chains");
    found
        .differences
        .extend(compare(&place, &lines(&want), &lines(&have)));
    found
        .holds
        .extend(have.iter().map(|line| format!("{name} {line}")));
}

fn lines(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// A chain that is reached, with the rules in it that packets for the address may match.
struct Way<'a> {
    chain: &'a str,
    destination: Destination,
    rules: Vec<String>,
}

fn push_chains(found: &mut Inspection, name: &str, have: &Table, want: &Table, subject: &Subject) {
    let (there, wanted) = (walk(have, subject), walk(want, subject));
    for way in &there {
        let shown = way.rules.iter().map(|rule| format!("{name} {rule}"));
        found.holds.extend(shown);
    }
    // A chain that is reached and should not be is told by the rule that leads to it. One that
    // is not reached and should be is looked at all the same: it may be damaged, too.
    for way in &wanted {
        let rules = matching(have, way.chain, subject, way.destination);
        let place = format!("{name}, chain {}", way.chain);
        let differences = compare(&place, &lines(&way.rules), &lines(&rules));
        found.differences.extend(differences);
    }
}

/// What a packet's destination is: before translation, or behind it.
#[derive(Clone, Copy)]
enum Destination {
    Frontend,
    Endpoint,
    /// Whoever has asked, to whom an endpoint's packets go: that may be anybody.
    Client,
}

/// Chains that packets for the address meet, each with the rules that may match.
fn walk<'a>(table: &'a Table, subject: &Subject) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in ENTRIES {
        let destination = match entry {
            SERVICES | LOCALHOST => Destination::Frontend,
            INVALID => Destination::Client,
            _ => Destination::Endpoint,
        };
        let mut next = vec![entry];
        while let Some(chain) = next.pop() {
            let Some((chain, _)) = table.chains.get_key_value(chain) else {
                continue;
            };
            if !seen.insert(chain.as_str()) {
                continue;
            }
            let rules = matching(table, chain, subject, destination);
            let targets = rules.iter().rev().filter_map(|rule| target(rule));
            let chains = targets.filter_map(|target| table.chains.get_key_value(target));
            next.extend(
                chains
                    .map(|(chain, _)| chain.as_str())
                    .filter(|chain| is_ours(chain)),
            );
            ways.push(Way {
                chain,
                destination,
                rules,
            });
        }
    }
    ways
}

fn matching(
    table: &Table,
    chain: &str,
    subject: &Subject,
    destination: Destination,
) -> Vec<String> {
    let protocol = match subject.target.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let meets = |rule: &String| {
        let to = |addr: Option<&SocketAddr>| may_match(rule, addr, protocol);
        match destination {
            Destination::Frontend => to(Some(&subject.target.addr)),
            Destination::Endpoint => {
                let mut endpoints = subject.endpoints.iter();
                endpoints.any(|addr| to(Some(addr))) || has_no_destination(rule)
            }
            Destination::Client => to(None),
        }
    };
    let body = table.chains.get(chain).into_iter();
    body.flat_map(|body| body.lines(chain))
        .filter(meets)
        .collect()
}

fn has_no_destination(rule: &str) -> bool {
    !words(rule).any(|word| word == "-d")
}

/// Whether a packet for `addr`, or for anybody, may meet all that a rule asks for.
fn may_match(rule: &str, addr: Option<&SocketAddr>, protocol: &str) -> bool {
    let mut negated = false;
    let mut words = words(rule);
    while let Some(word) = words.next() {
        let holds = match word {
            "-d" => words
                .next()
                .and_then(network)
                .zip(addr)
                .map(|(n, addr)| n.contains(addr.ip())),
            "-p" => words.next().map(|p| p == protocol),
            "--dport" => words
                .next()
                .and_then(ports)
                .zip(addr)
                .map(|((from, to), addr)| (from..=to).contains(&addr.port())),
            // What comes next is another option's or a comment's.
            "--comment" | "-s" | "-i" | "-o" => {
                words.next();
                None
            }
            _ => None,
        };
        if holds.is_some_and(|holds| holds == negated) {
            return false;
        }
        negated = word == "!";
    }
    true
}

fn network(word: &str) -> Option<IpNetwork> {
    word.parse().ok()
}

fn ports(word: &str) -> Option<(u16, u16)> {
    let (from, to) = word.split_once(':').unwrap_or((word, word));
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// A rule's words; one in quotes is one word.
fn words(rule: &str) -> impl Iterator<Item = &str> {
    let mut rest = rule;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let end = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').map_or(rest.len(), |end| end + 2),
            None => rest.find(' ').unwrap_or(rest.len()),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        (!word.is_empty()).then_some(word)
    })
}

/// The chain or target that a rule leads to.
fn target(rule: &str) -> Option<&str> {
    let mut words = words(rule);
    words.find(|word| matches!(*word, "-j" | "-g"))?;
    words.next()
}

/// Sets that the rules found so far look into.
fn push_sets(found: &mut Inspection, have: &Sets, want: &Sets) {
    let of_rule = |rule: &String| {
        let mut named =
            words(rule).skip_while(|word| *word != "--match-set" && *word != "--add-set");
        named.nth(1).map(str::to_owned)
    };
    let named: BTreeSet<String> = found.holds.iter().filter_map(of_rule).collect();
    for name in named {
        let shown = |sets: &Sets| {
            let timeout = sets.get(&name);
            timeout.map(|seconds| format!("{name} timeout {seconds}"))
        };
        let (have, want) = (shown(have), shown(want));
        found
            .holds
            .extend(have.iter().map(|set| format!("set {set}")));
        let deviation = match (&have, &want) {
            (None, Some(_)) => Deviation::Missing,
            (Some(have), Some(want)) if have != want => Deviation::Different,
            // A set that nobody wants is looked into by a rule that nobody wants.
            _ => continue,
        };
        found.differences.push(Difference {
            deviation,
            place: "the sets of clients".to_owned(),
            want,
            have,
        });
    }
}

#[cfg(test)]
mod tests;
