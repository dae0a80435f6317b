//! containerd in a place of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{Daemon, PATIENCE, Place};
use crate::{cache_dir, images, wait_until};

/// The socket of containerd, seen from inside a place.
pub const SOCKET: &str = "/run/containerd/containerd.sock";

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flavour {
    /// Debian's (1.6 in bookworm), which needs nothing but apt.
    #[default]
    Debian,
    /// The last of 1.x (1.7), built by `cargo xtask setup` from its Go module.
    Built17,
    /// The one that `cargo xtask setup` builds from its Go module (2.2).
    Built,
}

impl Flavour {
    /// The program called `name` of this containerd.
    fn program(self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn dir(self) -> PathBuf {
        match self {
            Self::Debian => PathBuf::from("/usr/bin"),
            Self::Built17 => cache_dir().join("bin/containerd-1.7"),
            Self::Built => cache_dir().join("bin"),
        }
    }

    /// `ctr`, for what Kubernetes has in containerd.
    #[must_use]
    pub fn ctr(self, place: &Place) -> Command {
        let mut command = place.command(self.program("ctr"));
        command.args(["--address", SOCKET, "--namespace", "k8s.io"]);
        command
    }

    /// Whether it is installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        self.program("containerd").exists()
    }
}

/// A running containerd.
#[derive(Debug)]
pub struct Containerd {
    daemon: Daemon,
    flavour: Flavour,
}

impl Containerd {
    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// When it is not installed or does not come up.
    pub fn start(place: &Place, flavour: Flavour) -> Result<Self> {
        let config = place.dir().join("containerd.toml");
        let root = place.dir().join("containerd");
        std::fs::write(&config, configuration(&root)).context("write containerd.toml")?;
        let mut command = place.command(flavour.program("containerd"));
        command.arg("--config").arg(&config);
        // Where it looks for its shim.
        command.env("PATH", format!("{}:{}", flavour.dir().display(), path()));
        let daemon = Daemon::start("containerd", command, &place.dir().join("containerd.log"))?;
        let mut containerd = Self { daemon, flavour };
        wait_until(PATIENCE, "containerd to serve", || {
            containerd.daemon.running()?;
            let asked = flavour.ctr(place).arg("version").output()?;
            let reason = String::from_utf8_lossy(&asked.stderr).into_owned();
            Ok(if asked.status.success() {
                Ok(())
            } else {
                Err(reason)
            })
        })?;
        Ok(containerd)
    }

    /// Loads an OCI archive.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import(&self, place: &Place, archive: &Path) -> Result<()> {
        let done = self
            .flavour
            .ctr(place)
            .args(["images", "import"])
            .arg(archive)
            .output()?;
        if !done.status.success() {
            bail!(
                "import {}: {}",
                archive.display(),
                String::from_utf8_lossy(&done.stderr)
            );
        }
        Ok(())
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.pid()
    }
}

fn path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())
}

/// Understood by containerd 1.6, 1.7 and 2.x alike.
fn configuration(root: &Path) -> String {
    let pause = images::PAUSE;
    let root = root.display();
    format!(
        r#"version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE an oom_score_adj cannot be lowered, and no sandbox would start.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"#
    )
}
