//! Telling another IPAM plugin that an address is free, long after its ADD.

use std::time::{Duration, Instant};

use crate::args::Environment;
use crate::delegate::{Delegate, TRY_AGAIN};
use crate::error::Error;
use crate::ipam::{Key, Record};

/// In a sweep. One that only forgets an address needs a part of a second.
const LIMIT: Duration = Duration::from_secs(15);
/// So many may take their time: the daemon ends a sweep after 2 minutes.
const HANGING_NETWORKS: u32 = 4;

/// What a sweep has waited for other IPAM plugins. One that hangs keeps the sweep neither from
/// the rest of its network nor from other networks.
#[derive(Debug)]
pub(super) struct Waits {
    /// For one call, and for calls of one network before the last one begins.
    limit: Duration,
    of_network: Duration,
    of_sweep: Duration,
}

/// A DEL of the plugin that a record names, if it names one, called as it was for the ADD.
pub(crate) fn give_back(key: &Key, record: &Record) -> Result<(), Error> {
    tell(key, record, |delegate| delegate.tell("DEL"))
}

fn tell(
    key: &Key,
    record: &Record,
    call: impl FnOnce(Delegate<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(ipam) = &record.ipam else {
        return Ok(());
    };
    let environment: Environment = [
        ("CNI_CONTAINERID", &key.container_id),
        ("CNI_IFNAME", &key.ifname),
        ("CNI_NETNS", &record.netns),
        ("CNI_PATH", &ipam.path),
        ("CNI_ARGS", &ipam.args),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()))
    .into();
    call(Delegate::of_record(ipam, &environment))
}

impl Waits {
    pub(super) fn new() -> Self {
        Self::of(LIMIT)
    }

    fn of(limit: Duration) -> Self {
        Self {
            limit,
            of_network: Duration::ZERO,
            of_sweep: Duration::ZERO,
        }
    }

    pub(super) fn next_network(&mut self) {
        self.of_network = Duration::ZERO;
    }

    /// The same DEL, with an end. After the time of the network or of the sweep it is not
    /// called: the record stays, and with it the next sweep's chance.
    ///
    /// A plugin that is not there is a failure here, unlike at GC: a sweep may run in a container
    /// that does not see the runtime's folder, and would forget what the plugin still knows.
    pub(super) fn give_back(&mut self, key: &Key, record: &Record) -> Result<(), Error> {
        let limit = self.limit;
        let is_over = self.of_network >= limit || self.of_sweep >= limit * HANGING_NETWORKS;
        if let Some(ipam) = record.ipam.as_ref().filter(|_| is_over) {
            return Err(Error::Delegate {
                kind: ipam.kind.clone(),
                verb: "DEL",
                code: TRY_AGAIN,
                why: String::from("not called, since IPAM plugins took too long before"),
            });
        }
        let began = Instant::now();
        let told = tell(key, record, |delegate| delegate.tell_within("DEL", limit));
        let took = began.elapsed();
        self.of_network += took;
        self.of_sweep += took;
        told
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::ipam::RecordedIpam;

    fn key() -> Key {
        Key {
            container_id: "c1".to_owned(),
            ifname: "eth0".to_owned(),
        }
    }

    /// Of a plugin in `dir` that does not end by itself.
    fn record(dir: &Path) -> Record {
        let program = dir.join("hangs");
        std::fs::write(&program, "#!/bin/sh\nexec /bin/sleep 60\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Record {
            key: key(),
            netns: String::new(),
            netns_id: (0, 0),
            host_ifname: String::new(),
            pod: None,
            extras: Vec::new(),
            host_ports: Vec::new(),
            ipam: Some(RecordedIpam {
                kind: "hangs".to_owned(),
                path: dir.to_str().unwrap().to_owned(),
                args: String::new(),
                conf: "{}".to_owned(),
            }),
        }
    }

    #[test]
    fn a_plugin_that_hangs_is_waited_for_once_in_each_network_and_not_in_many() {
        let dir = tempfile::tempdir().unwrap();
        let hanging = record(dir.path());
        let own = Record {
            ipam: None,
            ..hanging.clone()
        };
        let mut waits = Waits::of(Duration::from_millis(50));
        for network in 0..=HANGING_NETWORKS {
            waits.next_network();
            let mut fails = |why: &str| {
                let error = waits.give_back(&key(), &hanging).unwrap_err().to_string();
                assert!(error.contains(why), "network {network}: {error}");
            };
            if network < HANGING_NETWORKS {
                fails("no answer");
            }
            fails("not called");
            fails("not called");
            waits.give_back(&key(), &own).unwrap();
        }
    }
}
