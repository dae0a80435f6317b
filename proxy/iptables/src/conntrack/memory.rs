//! Where flows of Services may be, for a daemon that starts after this one has died.
//!
//! Of a Service that is deleted meanwhile, or just before the death, nothing else tells that a
//! flow was its: there are no rules any more, and others translate, too. A file for each family
//! names what clients send to, a line each. It is written before the first rule that may lead
//! there, and forgets after the last flow. conntrack does not survive the machine, so neither
//! need the file.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use seaway_proxy_core::desired::{Family, Protocol};
use tracing::{debug, warn};

use super::flows::Flows;

/// The last part of the names in the run directory.
const FILE: &str = "udp-and-sctp-services";

/// Of one family.
#[derive(Debug)]
pub(super) struct Memory {
    file: PathBuf,
    /// What is in the file, or should be.
    kept: Names,
    /// Whether the last write has failed.
    failed: bool,
}

/// What clients send to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) addresses: BTreeSet<(Protocol, SocketAddr)>,
    pub(super) node_ports: BTreeSet<(Protocol, u16)>,
}

impl Memory {
    /// What an earlier run has left, if anything can be read.
    pub(super) fn open(run_dir: &Path, family: Family) -> Self {
        let file = run_dir.join(format!("{FILE}-{}", family.to_string().to_lowercase()));
        let kept = match fs::read_to_string(&file) {
            Ok(text) => Names::parse(&text),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    debug!(file = %file.display(), %error, "Cannot read");
                }
                Names::default()
            }
        };
        Self {
            file,
            kept,
            failed: false,
        }
    }

    pub(super) fn kept(&self) -> Flows {
        Flows::named(&self.kept)
    }

    /// A failure costs what a death in a bad moment leaves, so it is told and not returned.
    pub(super) fn keep(&mut self, flows: &Flows) {
        let names = flows.names();
        if names == self.kept && !self.failed {
            return;
        }
        let written = self.write(&names);
        self.kept = names;
        let failed_before = std::mem::replace(&mut self.failed, written.is_err());
        if let Err(error) = written
            && !failed_before
        {
            warn!(file = %self.file.display(), %error, "Cannot remember Services of UDP and SCTP");
        }
    }

    /// Half a file would forget.
    fn write(&self, names: &Names) -> io::Result<()> {
        if *names == Names::default() {
            return self.forget();
        }
        if let Some(dir) = self.file.parent() {
            fs::create_dir_all(dir)?;
        }
        let half = self.half();
        fs::write(&half, names.to_text())?;
        fs::rename(&half, &self.file)
    }

    /// Not swept by whoever starts, as other half-written files are: another task does that, at
    /// the same time. The next write takes it.
    fn half(&self) -> PathBuf {
        self.file.with_extension("half")
    }

    /// Leaves no file.
    pub(super) fn forget(&self) -> io::Result<()> {
        for file in [self.half(), self.file.clone()] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Names {
    fn to_text(&self) -> String {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|(protocol, to)| format!("{protocol} {to}\n"));
        let node_ports = self.node_ports.iter();
        let node_ports = node_ports.map(|(protocol, port)| format!("{protocol} {port}\n"));
        addresses.chain(node_ports).collect()
    }

    /// Without what cannot be read.
    fn parse(text: &str) -> Self {
        let mut names = Self::default();
        for (protocol, to) in text.lines().filter_map(|line| line.split_once(' ')) {
            let mut known = [Protocol::Udp, Protocol::Sctp].into_iter();
            let Some(protocol) = known.find(|one| one.to_string() == protocol) else {
                continue;
            };
            let (port, address) = (to.parse(), to.parse());
            names.node_ports.extend(port.map(|port| (protocol, port)));
            names.addresses.extend(address.map(|to| (protocol, to)));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            addresses: BTreeSet::from([
                (Protocol::Udp, "10.96.0.10:53".parse().unwrap()),
                (Protocol::Sctp, "[fd00::a]:38412".parse().unwrap()),
            ]),
            node_ports: BTreeSet::from([(Protocol::Udp, 30053)]),
        }
    }

    #[test]
    fn what_is_kept_is_known_to_the_next_run_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        let open = |family| Memory::open(&run_dir, family);
        let mut memory = open(Family::V4);
        assert_eq!(memory.kept, Names::default());
        memory.keep(&Flows::default());
        assert!(!run_dir.exists(), "nothing is worth a file");
        memory.keep(&Flows::named(&names()));
        assert_eq!(open(Family::V4).kept, names());
        assert_eq!(open(Family::V6).kept, Names::default());
        memory.keep(&Flows::default());
        assert_eq!(fs::read_dir(&run_dir).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text = format!(
            "{}TCP 10.96.0.1:80\nUDP\nUDP x\n\nSCTP 65536\n",
            names().to_text()
        );
        assert_eq!(Names::parse(&text), names());
    }

    #[test]
    fn what_could_not_be_written_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        fs::write(&run_dir, "in the way").unwrap();
        let mut memory = Memory::open(&run_dir, Family::V4);
        let flows = Flows::named(&names());
        memory.keep(&flows);
        fs::remove_file(&run_dir).unwrap();
        memory.keep(&flows);
        assert_eq!(Memory::open(&run_dir, Family::V4).kept(), flows);
    }
}
