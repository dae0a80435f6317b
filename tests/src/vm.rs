//! Debian's own kernels in a virtual machine, for what this machine's kernel lacks.
//!
//! ```text
//!  cache: root.img (Debian, both kernels' modules), a kernel and an initrd each   made once
//!  payload.img: our programs, test programs, images, what to run           made for each run
//!  qemu (software emulation) ── serial console ──► lines ──► results
//! ```
//! [`run`] starts a machine once, on a disk that forgets. A [`Machine`] can be started again
//! and again, its power can be cut, and its disk remembers.
//!
//! It is slow, so what runs in it is chosen. Process 1 is a script that mounts what a machine
//! has mounted (a pure cgroup2 tree), or systemd with what Debian's network services need.

mod boot;
mod image;
mod machine;
mod payload;
mod process;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use nix::sys::statvfs::statvfs;

use crate::temporary;
use boot::{Disk, Setup};

pub use boot::Running;
pub(crate) use image::suite as debian_suite;
pub use machine::{Init, Machine};
pub use payload::{Payload, suites};

/// Size of a machine's disk, which it may come to fill.
const DISK_BYTES: u64 = 2 << 30;

/// A kernel of Debian's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The oldest that we support: no tcx, no netkit.
    Linux6_1,
    /// The one of Debian 13, and of Debian 12's backports.
    Linux6_12,
}

impl Kernel {
    /// The package that depends on the current build of it.
    fn package(self) -> &'static str {
        match self {
            Self::Linux6_1 => "linux-image-cloud-amd64",
            Self::Linux6_12 => "linux-image-6.12-cloud-amd64",
        }
    }

    /// How its version begins.
    fn version(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1.",
            Self::Linux6_12 => "6.12.",
        }
    }

    /// Its name in the cache.
    fn name(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
        }
    }
}

/// What became of one command inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The name it was given in the payload.
    pub name: String,
    /// Its exit status; none when the machine ended before.
    pub status: Option<i32>,
    /// How long it took, in whole seconds of the machine's own clock.
    pub time: Duration,
    /// What it printed.
    pub output: String,
}

/// What a machine has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One per command of the payload, in its order.
    pub outcomes: Vec<Outcome>,
    /// How often the machine was started: more than once when it has panicked before init,
    /// which the emulation of two processors causes about once in ten boots of 6.12.
    pub boots: u32,
    /// Everything that was seen on the console of the last boot.
    pub console: String,
}

/// Boots a kernel, runs the payload's commands one after the other, and powers off.
///
/// # Errors
/// When something is not installed, the image cannot be made, or the machine does not boot.
pub fn run(kernel: Kernel, payload: &Payload, patience: Duration) -> Result<Report> {
    let base = image::base()?;
    let dir = temporary("vm")?;
    let drive = dir.path().join("payload.img");
    payload.write(&drive)?;
    let root = base.root();
    let setup = Setup {
        base: &base,
        kernel,
        root: Disk::Forgets(&root),
        payload: &drive,
        words: String::new(),
        uplink: false,
    };
    boot::start(&setup)?.finish(patience)
}

/// Whether the programs for it are installed, and there is room for a machine's disk.
///
/// # Errors
/// With the package that is missing, or the folder that is full.
pub fn available() -> Result<(), String> {
    for (program, package) in [
        ("/usr/bin/qemu-system-x86_64", "qemu-system-x86"),
        ("/usr/bin/mmdebstrap", "mmdebstrap"),
        ("/usr/bin/cpio", "cpio"),
        ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
        ("/usr/sbin/depmod", "kmod"),
    ] {
        if !Path::new(program).exists() {
            return Err(format!("{program} is missing: apt-get install {package}"));
        }
    }
    crate::sweep::once();
    // QEMU has what a disk forgets in the latter.
    [std::env::temp_dir(), "/var/tmp".into()]
        .iter()
        .try_for_each(|folder| has_room(folder))
}

fn has_room(folder: &Path) -> Result<(), String> {
    let disk = statvfs(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let free = disk.blocks_available() * disk.fragment_size();
    if free >= DISK_BYTES {
        return Ok(());
    }
    let (free, wanted) = (free >> 20, DISK_BYTES >> 20);
    Err(format!(
        "{} has {free} MB free, a machine's disk may want {wanted} MB",
        folder.display()
    ))
}
