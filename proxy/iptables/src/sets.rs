//! Who has met which endpoint: the sets of session affinity.
//!
//! One ipset for each endpoint of a Service port with affinity, with the clients
//! that met it last; an entry goes by itself when the timeout is over, and every
//! new connection begins it anew. A list of `xt_recent` would do the same for
//! 100 clients, which is a limit of the module that no rule can lift.
//!
//! The timeout is a part of the name, so a set never has to change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use seaway_proxy_core::desired::{Family, Protocol, ServicePort, ServicePortName};
use sha2::{Digest, Sha256};

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

/// Timeouts in seconds by name.
pub(crate) type Sets = BTreeMap<String, u64>;

fn prefix(family: Family) -> &'static str {
    match family {
        Family::V4 => "SEAWAY-4-",
        Family::V6 => "SEAWAY-6-",
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
        let name = words
            .next()
            .filter(|name| name.starts_with(prefix(family)))?;
        let timeout = words.skip_while(|word| *word != "timeout").nth(1);
        // One without a timeout is damaged, and looks like no set that is wanted.
        let timeout = timeout.and_then(|seconds| seconds.parse().ok());
        Some((name.to_owned(), timeout.unwrap_or(0)))
    };
    dump.lines().filter_map(ours).collect()
}

/// Input of `ipset restore` that creates what is missing.
pub(crate) fn creation(have: &Sets, want: &Sets, family: Family) -> String {
    let inet = match family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    let mut sizes = BUCKETS.iter();
    let size = sizes.find(|(sets, _)| want.len() <= *sets);
    let buckets = size.map_or(64, |(_, buckets)| *buckets);
    let missing = want.iter().filter(|(name, _)| !have.contains_key(*name));
    missing.fold(String::new(), |mut text, (name, timeout)| {
        let kind = format_args!("hash:ip family {inet} hashsize {buckets} maxelem {CLIENTS_MAX}");
        writeln!(text, "create {name} {kind} timeout {timeout}")
            .expect("writing to a String cannot fail");
        text
    })
}

/// Names of sets that are no longer wanted.
pub(crate) fn superfluous<'a>(have: &'a Sets, want: &'a Sets) -> impl Iterator<Item = &'a String> {
    have.keys().filter(|name| !want.contains_key(*name))
}

#[cfg(test)]
mod tests;
