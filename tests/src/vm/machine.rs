//! A machine whose disk outlives its power.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::boot::{self, Disk, Running, Setup};
use super::image::{self, Base};
use super::{Kernel, Payload};
use crate::temporary;

/// What runs as process 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// A script: the machine has nothing but a kernel, mounts and loopback.
    Script,
    /// systemd with udev and D-Bus, and a network device that nobody has configured yet.
    /// `NetworkManager`, `systemd-networkd` and `firewalld` are there, and not started.
    Systemd,
}

/// A machine that can be started again and again, one start at a time.
#[derive(Debug)]
pub struct Machine {
    base: Base,
    kernel: Kernel,
    init: Init,
    dir: tempfile::TempDir,
}

impl Machine {
    /// Makes its disks; it is not started.
    ///
    /// # Errors
    /// When something is not installed or the image cannot be made.
    pub fn new(kernel: Kernel, init: Init, payload: &Payload) -> Result<Self> {
        let machine = Self {
            base: image::base()?,
            kernel,
            init,
            dir: temporary("vm")?,
        };
        payload.write(&machine.disk("payload.img"))?;
        // Two gigabytes of which most are holes.
        image::run(
            Command::new("cp")
                .args(["--sparse=always", "--reflink=auto"])
                .args([machine.base.root(), machine.disk("root.img")]),
        )?;
        Ok(machine)
    }

    /// Switches it on, to do only what is called `run` in its payload.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(&self, run: &str) -> Result<Running> {
        let root = self.disk("root.img");
        let mut words = format!("seaway.run={run}");
        if self.init == Init::Systemd {
            words.push_str(SYSTEMD);
        }
        boot::start(&Setup {
            base: &self.base,
            kernel: self.kernel,
            root: Disk::Remembers(&root),
            payload: &self.disk("payload.img"),
            words,
            uplink: self.init == Init::Systemd,
        })
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// The console is for what the test says; nobody logs in; the device is called `eth0`.
const SYSTEMD: &str = " seaway.init=/sbin/init quiet systemd.show_status=0 \
                       systemd.log_target=journal systemd.getty_auto=0 net.ifnames=0";
