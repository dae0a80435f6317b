//! Where a node's programs run: namespaces, mounts, cgroups and a folder of its own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, unshare};

use crate::{Cgroup2, Join, Netns, PrivateMounts, connect};

use super::cgroups_v1::{self, CgroupsV1};

/// A machine, as far as a node's programs can tell: its own network, host name, `/run`,
/// `/etc`, `/opt`, `/var`, BPF file system, and a cgroup of its own in every hierarchy.
///
/// What is written to `/etc`, `/opt` and `/var` inside lands in [`Self::dir`], so the host is
/// never touched. Its uplink `eth0` ends in a namespace from which nothing leads on.
#[derive(Debug)]
pub struct Place {
    // In the order in which they are dropped: processes first.
    cgroup: Cgroup2,
    _cgroups_v1: CgroupsV1,
    netns: Netns,
    outside: Netns,
    mounts: PrivateMounts,
    hostname: OwnedFd,
    dir: Folder,
    name: String,
}

/// A node's address on its uplink.
pub const NODE_IP: &str = "172.30.0.11";
/// The other end of the uplink: the node's default gateway, and a client from outside.
pub const OUTSIDE_IP: &str = "172.30.0.1";

impl Place {
    /// Makes a place under a name that is used for everything in it.
    ///
    /// # Errors
    /// When something of that name exists, or the kernel refuses.
    pub fn new(name: &str, hostname: &str) -> Result<Self> {
        let dir = Folder::new(name)?;
        let mounts = private_mounts(dir.path())?;
        let netns = Netns::named(name);
        let outside = Netns::named(&format!("{name}-outside"));
        let prefix = |address: &str| format!("{address}/24");
        connect(
            &netns,
            "eth0",
            &prefix(NODE_IP),
            &outside,
            "eth0",
            &prefix(OUTSIDE_IP),
        );
        netns.ip(&format!("route add default via {OUTSIDE_IP}"));
        let cgroup = Cgroup2::named(name);
        let cgroups_v1 = CgroupsV1::new(name)?;
        // In a pure cgroup2 tree a group with processes has no children, so they get their own.
        std::fs::create_dir(cgroup.path().join("daemons")).context("make the daemons' cgroup")?;
        cgroup.delegate()?;
        let hostname = uts_namespace(hostname)?;
        let name = name.to_owned();
        Ok(Self {
            cgroup,
            _cgroups_v1: cgroups_v1,
            netns,
            outside,
            mounts,
            hostname,
            dir,
            name,
        })
    }

    /// Ends and removes what there is under a name, whoever made it; nothing is fine.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(name: &str) -> Result<()> {
        for mount in std::iter::once(crate::cgroup2_mount()).chain(cgroups_v1::mounts()) {
            crate::cgroup::remove_tree(&mount.join(name))
                .with_context(|| format!("cgroup {name}"))?;
        }
        for name in [name.to_owned(), format!("{name}-outside")] {
            let path = Path::new(crate::sweep::NETNS_DIR).join(&name);
            crate::sweep::remove_netns(&path).with_context(|| format!("namespace {name}"))?;
        }
        match std::fs::remove_dir_all(Self::folder(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("folder of {name}"))
            }
            _ => Ok(()),
        }
    }

    /// The folder on the host of the place called `name`.
    #[must_use]
    pub fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(name)
    }

    /// The name of its folder, network namespace and cgroups.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder on the host: logs, and what was written to `/etc`, `/opt` and `/var`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its network.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The other end of its uplink.
    #[must_use]
    pub fn outside(&self) -> &Netns {
        &self.outside
    }

    /// Its mounts.
    #[must_use]
    pub fn mounts(&self) -> &PrivateMounts {
        &self.mounts
    }

    /// The root of its cgroup2 subtree.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        self.cgroup.path()
    }

    /// Its cgroup in every hierarchy, as the agent's `--cgroup-root`.
    #[must_use]
    pub fn cgroup_root(&self) -> String {
        format!("/{}", self.name)
    }

    /// A command that runs inside.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let hostname = self
            .hostname
            .try_clone()
            .expect("there are free file descriptors");
        let mut command = Join::new()
            .cgroup_dir(&self.cgroup.path().join("daemons"))
            .netns(&self.netns)
            .namespace(hostname)
            .mounts(&self.mounts)
            .command(program);
        command.current_dir("/");
        command
    }
}

/// A folder in the temporary directory, removed with its content.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = Place::folder(name);
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            crate::sweep::complain(&format!("remove {}: {error}", self.0.display()));
        }
    }
}

fn private_mounts(dir: &Path) -> Result<PrivateMounts> {
    let mut mounts = PrivateMounts::new();
    for name in ["etc", "opt", "var"] {
        let upper = dir.join(name);
        let work = dir.join(format!(".{name}-work"));
        for dir in [&upper, &work] {
            std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
        }
        mounts = mounts.overlay(&format!("/{name}"), &upper, &work);
    }
    // Pods' hostPath volumes may ask for propagation, which a private mount cannot give.
    Ok(mounts.share())
}

/// A host name of its own.
fn uts_namespace(hostname: &str) -> Result<OwnedFd> {
    let made = std::thread::scope(|scope| {
        let inside = || -> std::io::Result<File> {
            unshare(CloneFlags::CLONE_NEWUTS)?;
            nix::unistd::sethostname(hostname)?;
            File::open("/proc/thread-self/ns/uts")
        };
        scope
            .spawn(inside)
            .join()
            .expect("the thread does not panic")
    });
    Ok(made.context("make a host name")?.into())
}
