//! The CNI conf: what it says, and its life on disk.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ipnetwork::Ipv4Network;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// Sorts before other vendors' files, so that the runtime takes ours.
const FILE_NAME: &str = "05-seaway.conflist";
/// In the run dir; holds the boot id under which the conf was written.
const MARKER: &str = "cni-conf.boot-id";
/// Changes with every boot of the kernel; random(4) of the man pages.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file operation on behalf of the CNI conf failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", path.display())]
pub struct ConfError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// What the CNI conf says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConf {
    /// Where pods on this node get addresses from; its first one is the node's.
    pub pod_cidr: Ipv4Network,
    /// MTU of pod interfaces, bytes.
    pub mtu: u32,
    /// Where the plugin keeps its address records; must not outlive a boot.
    pub data_dir: PathBuf,
}

impl NetworkConf {
    /// The conflist, in the shape of the CNI specification 1.1.0, section 1.
    ///
    /// `cniVersion` stays at 1.0.0: containerd 1.6 refuses a newer one, and
    /// runtimes that know `cniVersions` choose from there.
    pub fn to_json(&self) -> String {
        let conf: Value = json!({
            "cniVersion": "1.0.0",
            "cniVersions": ["0.4.0", "1.0.0", "1.1.0"],
            "name": "seaway",
            "plugins": [{
                "type": "seaway-cni",
                "mtu": self.mtu,
                // What runtimes may ask of the plugin for one pod.
                "capabilities": {
                    "bandwidth": true,
                    "ipRanges": true,
                    "ips": true,
                    "mac": true,
                    "portMappings": true,
                },
                "ipam": {
                    "type": "seaway",
                    "ranges": [{ "subnet": self.pod_cidr.to_string() }],
                    "dataDir": self.data_dir,
                },
            }],
        });
        format!("{conf:#}\n")
    }

    /// The address of [`pod_cidr`](Self::pod_cidr) that no pod gets.
    pub fn reserved(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.pod_cidr.network()).saturating_add(1))
    }
}

/// The conf file of this node.
///
/// Its presence tells the runtime that pods can be started, so it must not
/// appear before they can, nor survive a boot from which nothing is left.
#[derive(Clone, Debug)]
pub struct ConfFile {
    path: PathBuf,
    marker: PathBuf,
    boot_id: PathBuf,
}

impl ConfFile {
    /// A conf in `conf_dir` (`/etc/cni/net.d`) with its marker in `run_dir`.
    pub fn new(conf_dir: &Path, run_dir: &Path) -> Self {
        Self {
            path: conf_dir.join(FILE_NAME),
            marker: run_dir.join(MARKER),
            boot_id: BOOT_ID.into(),
        }
    }

    /// Where the conf is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the conf if it stems from an earlier boot; tells whether it did.
    ///
    /// A conf of this boot stays: a restarted daemon must not make the node unready.
    pub fn withdraw_stale(&self) -> Result<bool, ConfError> {
        let written_in = read(&self.marker)?;
        if written_in.is_some() && written_in == Some(self.current_boot()?) {
            return Ok(false);
        }
        self.remove()
    }

    /// Writes the conf unless it is there already; tells whether it wrote.
    ///
    /// Readers see the old or the new content, never a part.
    pub fn write(&self, conf: &NetworkConf) -> Result<bool, ConfError> {
        let content = conf.to_json();
        // The marker goes first: a conf without one would be withdrawn at the next start.
        let boot = self.current_boot()?;
        if read(&self.marker)?.as_ref() != Some(&boot) {
            replace(&self.marker, &boot)?;
        }
        if read(&self.path)?.as_ref() == Some(&content) {
            return Ok(false);
        }
        replace(&self.path, &content)?;
        Ok(true)
    }

    /// Removes the conf; absent is fine. Tells whether it was there.
    pub fn remove(&self) -> Result<bool, ConfError> {
        let there = remove(&self.path)?;
        remove(&self.marker)?;
        Ok(there)
    }

    fn current_boot(&self) -> Result<String, ConfError> {
        fs::read_to_string(&self.boot_id).map_err(failed("read", &self.boot_id))
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ConfError {
    move |source| ConfError {
        operation,
        path: path.to_owned(),
        source,
    }
}

fn read(path: &Path) -> Result<Option<String>, ConfError> {
    match fs::read(path) {
        // Whatever is not ours is not equal to ours, so it need not be text.
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("read", path)(e)),
    }
}

fn remove(path: &Path) -> Result<bool, ConfError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("remove", path)(e)),
    }
}

/// Temp file in the same folder, synced, renamed.
///
/// The temp name ends in `.tmp`, which CNI libraries do not load.
fn replace(path: &Path, content: &str) -> Result<(), ConfError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(failed("create directory", dir))?;
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".seaway-")
            .suffix(".tmp")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(dir)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(failed("write", path))
}
