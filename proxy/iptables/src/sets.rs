//! Who has met which endpoint: the sets of session affinity.
//!
//! One ipset for each endpoint of a Service port with affinity, with the clients
//! that met it last; an entry goes by itself when the timeout is over, and every
//! new connection begins it anew. A list of `xt_recent` would do the same for
//! 100 clients, which is a limit of the module that no rule can lift.
//!
//! The timeout is a part of the name, so a set never has to change, unless somebody
//! else has changed it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use seaway_proxy_core::desired::{Family, Protocol, ServicePort, ServicePortName};
use sha2::{Digest, Sha256};

use crate::rendered::PREFIX;

/// Most clients of one endpoint. Each takes some 50 bytes of kernel memory.
const CLIENTS_MAX: usize = 1 << 20;
/// Most sets in one family. The kernel numbers sets with 16 bits
/// (`ip_set_id_t`), for both families and everybody else's together.
const SETS_MAX: usize = 30_000;

/// Buckets of a set, by how many sets of a family there may be at most.
///
/// A set does not grow by what rules add (`ipset(8)`, "hashsize"), and a bucket
/// has room for 12 clients. 4,096 buckets take 32 kB of kernel memory and hold
/// 10,000 clients, all but one in a million of them; so these sizes are what
/// 16 MB, 32 MB and 60 MB allow. A set keeps the size that it was made with.
const BUCKETS: [(usize, u32); 3] = [(500, 4096), (4_000, 1024), (SETS_MAX, 256)];

/// Shares out the sets of one family. Asked for one Service port after the other
/// in the order of their names, it always gives the same answers.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
}

impl Room {
    /// As large as the kernel's; none without ipset.
    pub(crate) fn new(ipset: bool) -> Self {
        let left = if ipset { SETS_MAX } else { 0 };
        Self { left }
    }

    /// Whether clients of this Service port are remembered. One that does not
    /// fit leaves the room to those that do.
    pub(crate) fn take(&mut self, port: &ServicePort) -> Option<Duration> {
        let timeout = port.affinity?;
        self.left = self.left.checked_sub(port.endpoints().len())?;
        Some(timeout)
    }
}

/// A set of no Service, which is there while it is tried out whether sets work.
pub(crate) const PROBE: &str = "SEAWAY-4-probe";

/// Timeouts in seconds by name.
pub(crate) type Sets = BTreeMap<String, u64>;

fn prefix(family: Family) -> &'static str {
    match family {
        Family::V4 => "SEAWAY-4-",
        Family::V6 => "SEAWAY-6-",
    }
}

/// Whether a set is to be kept or removed with this family's. One that another version has
/// made under a name of its own goes with IPv4's, which every node has.
fn is_of(family: Family, name: &str) -> bool {
    match family {
        Family::V4 => name.starts_with(PREFIX) && !is_of(Family::V6, name),
        Family::V6 => name.starts_with(prefix(Family::V6)),
    }
}

/// The set, and behind its last dash what is unique in it: 64 bits of a hash.
pub(crate) fn name(
    family: Family,
    service: &ServicePortName,
    protocol: Protocol,
    endpoint: SocketAddr,
    timeout: Duration,
) -> String {
    let seconds = timeout.as_secs();
    let hash = Sha256::digest(format!("{service}/{protocol}/{endpoint}/{seconds}"));
    let digits = hash.iter().take(8);
    digits.fold(prefix(family).to_owned(), |mut name, byte| {
        write!(name, "{byte:02x}").expect("writing to a String cannot fail");
        name
    })
}

/// Our sets of one family in the output of `ipset list -terse -output save`.
pub(crate) fn parse(dump: &str, family: Family) -> Sets {
    let ours = |line: &str| {
        let mut words = line.strip_prefix("create ")?.split(' ');
        let name = words.next().filter(|name| is_of(family, name))?;
        let timeout = words.skip_while(|word| *word != "timeout").nth(1);
        // One without a timeout is damaged, and looks like no set that is wanted.
        let timeout = timeout.and_then(|seconds| seconds.parse().ok());
        Some((name.to_owned(), timeout.unwrap_or(0)))
    };
    dump.lines().filter_map(ours).collect()
}

/// Names of all sets in such an output.
pub(crate) fn names(dump: &str) -> BTreeSet<&str> {
    let creations = dump.lines().filter_map(|line| line.strip_prefix("create "));
    creations
        .filter_map(|line| line.split(' ').next())
        .collect()
}

/// Whether another version has made it, under a name of its own.
pub(crate) fn is_stranger(name: &str) -> bool {
    !Family::ALL
        .iter()
        .any(|&family| name.starts_with(prefix(family)))
}

/// Input of `ipset restore` that creates what is missing.
pub(crate) fn creation(have: &Sets, want: &Sets, family: Family) -> String {
    let missing = want.iter().filter(|(name, _)| !have.contains_key(*name));
    let kind = kind(want, family);
    missing.fold(String::new(), |mut text, (name, timeout)| {
        writeln!(text, "create {name} {kind} timeout {timeout}")
            .expect("writing to a String cannot fail");
        text
    })
}

/// A new set that takes the place of an old one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub(crate) name: String,
    /// What was found, and what is wanted.
    pub(crate) timeouts: [u64; 2],
    /// What the new one is called until then, and the old one after it. Ours by its prefix, so
    /// what a crash leaves of it is found and destroyed.
    pub(crate) spare: String,
    /// Input of `ipset restore`.
    pub(crate) script: String,
}

/// For each set that somebody else has given another timeout.
///
/// Rules look into it, so it cannot be destroyed itself. Who is in it is forgotten with it,
/// since nobody knows for how long they were to be remembered.
pub(crate) fn replacements(have: &Sets, want: &Sets, family: Family) -> Vec<Replacement> {
    let kind = kind(want, family);
    let replace = |(name, timeout): (&String, &u64)| {
        let found = have.get(name).filter(|found| *found != timeout)?;
        let spare = name.replacen(prefix(family), &format!("{}x", prefix(family)), 1);
        let create = format!("create {spare} {kind} timeout {timeout}");
        let script = format!("{create}\nswap {spare} {name}\ndestroy {spare}\n");
        Some(Replacement {
            name: name.clone(),
            timeouts: [*found, *timeout],
            spare,
            script,
        })
    };
    want.iter().filter_map(replace).collect()
}

/// What a set is made of, but for its timeout.
fn kind(want: &Sets, family: Family) -> String {
    let inet = match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    let mut sizes = BUCKETS.iter();
    let size = sizes.find(|(sets, _)| want.len() <= *sets);
    let buckets = size.map_or(64, |(_, buckets)| *buckets);
    format!("hash:ip family {inet} hashsize {buckets} maxelem {CLIENTS_MAX}")
}

/// Names of sets that are no longer wanted.
pub(crate) fn superfluous<'a>(have: &'a Sets, want: &'a Sets) -> impl Iterator<Item = &'a String> {
    have.keys().filter(|name| !want.contains_key(*name))
}

#[cfg(test)]
mod tests;
