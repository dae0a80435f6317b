//! The CNI conf: what it says, and its life on disk.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ipnetwork::IpNetwork;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// In the run dir; holds the boot id under which the conf was written.
const MARKER: &str = "cni-conf.boot-id";
/// Changes with every boot of the kernel; random(4) of the man pages.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Beginning and end of the names of half-written files; CNI libraries load no `.tmp`.
const TEMPORARY: (&str, &str) = (".seaway-", ".tmp");

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
    /// Where pods on this node get addresses from, one of each family: of several ranges of
    /// one family the first one that has any left. The one after each range's network address
    /// is the node's.
    pub pod_cidrs: Vec<IpNetwork>,
    /// MTU of pod interfaces, bytes.
    pub mtu: u32,
    /// Where the plugin keeps its address records; must not outlive a boot.
    pub data_dir: PathBuf,
    /// Where the plugin's `STATUS` learns whether the pod network serves.
    pub state_file: PathBuf,
    /// Whether a pod that comes again gets the address that it had.
    pub sticky: bool,
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
                "podNetworkState": self.state_file,
                // What runtimes may ask of the plugin for one pod.
                "capabilities": {
                    "aliases": true,
                    "bandwidth": true,
                    "dns": true,
                    "ipRanges": true,
                    "ips": true,
                    "mac": true,
                    "portMappings": true,
                },
                "ipam": self.ipam(),
            }],
        });
        format!("{conf:#}\n")
    }

    fn ipam(&self) -> Value {
        let ranges = self.pod_cidrs.iter();
        let ranges: Vec<_> = ranges
            .map(|cidr| json!({ "subnet": cidr.to_string() }))
            .collect();
        let mut ipam = json!({
            "type": "seaway",
            "ranges": ranges,
            "dataDir": self.data_dir,
        });
        // Where it is not wanted nothing is said, as in confs of before.
        if self.sticky {
            ipam["sticky"] = json!(true);
        }
        ipam
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
    /// In the conf folder; sorts before other vendors' files, so that the runtime takes ours.
    pub const NAME: &str = "05-seaway.conflist";

    /// A conf in `conf_dir` (`/etc/cni/net.d`) with its marker in `run_dir`.
    pub fn new(conf_dir: &Path, run_dir: &Path) -> Self {
        Self {
            path: conf_dir.join(Self::NAME),
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
    /// What a killed daemon has left half written goes in any case.
    pub fn withdraw_stale(&self) -> Result<bool, ConfError> {
        for path in [&self.path, &self.marker] {
            remove_half_written(folder(path))?;
        }
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
        read_boot_id(&self.boot_id)
    }
}

pub(crate) fn read_boot_id(path: &Path) -> Result<String, ConfError> {
    fs::read_to_string(path).map_err(failed("read", path))
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// There is one writer for each folder, so at its start all of them are a dead one's.
fn remove_half_written(dir: &Path) -> Result<(), ConfError> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list", dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed("list", dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ConfError {
    move |source| ConfError {
        operation,
        path: path.to_owned(),
        source,
    }
}

pub(crate) fn read(path: &Path) -> Result<Option<String>, ConfError> {
    match fs::read(path) {
        // Whatever is not ours is not equal to ours, so it need not be text.
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("read", path)(e)),
    }
}

pub(crate) fn remove(path: &Path) -> Result<bool, ConfError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("remove", path)(e)),
    }
}

/// Temp file in the same folder, synced, renamed. Its name is the same each time, so that
/// errors are, too; there is one writer.
pub(crate) fn replace(path: &Path, content: &str) -> Result<(), ConfError> {
    let dir = folder(path);
    fs::create_dir_all(dir).map_err(failed("create directory", dir))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!("{}{name}{}", TEMPORARY.0, TEMPORARY.1));
    let written = write_new(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What remains of it goes at the next attempt or start; the first error is the news.
        fs::remove_file(&temporary).ok();
    }
    written.map_err(failed("write", path))
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}
