//! One record: a file whose name says all that matters.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;

use serde::Serialize;

use super::{IpamError, file};

/// Which interface of which container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// `CNI_CONTAINERID`; contains no `:`.
    pub container_id: String,
    /// `CNI_IFNAME`; contains no `:` and no `/`.
    pub ifname: String,
}

/// What a record holds besides its key, for people and for garbage collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds the address.
    pub key: Key,
    /// `CNI_NETNS`.
    pub netns: String,
    /// Device and inode of the namespace.
    pub netns_id: (u64, u64),
    /// Name of the host's end of the veth.
    pub host_ifname: String,
    /// `namespace/name` of the pod, where the runtime told it.
    pub pod: Option<String>,
}

/// A record seen in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) address: Ipv4Addr,
    pub(super) key: Key,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    boot_id: &'a str,
    address: Ipv4Addr,
    container_id: &'a str,
    ifname: &'a str,
    netns: &'a str,
    netns_device: u64,
    netns_inode: u64,
    host_ifname: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
}

/// Prefix of half-written files. They are only made under the lock, so one
/// that is seen under the lock has been left by a killed process.
const TEMPORARY: &str = ".new-";

impl Record {
    pub(super) fn write(
        &self,
        dir: &Path,
        address: Ipv4Addr,
        boot_id: &str,
    ) -> Result<(), IpamError> {
        let content = Content {
            boot_id,
            address,
            container_id: &self.key.container_id,
            ifname: &self.key.ifname,
            netns: &self.netns,
            netns_device: self.netns_id.0,
            netns_inode: self.netns_id.1,
            host_ifname: &self.host_ifname,
            pod: self.pod.as_deref(),
        };
        let text = serde_json::to_vec(&content).expect("all keys are text");
        replace(dir, &name(address, &self.key), &text)
    }
}

impl Held {
    /// `None`: not a record, but somebody's file.
    fn parse(name: &str) -> Option<Self> {
        let (address, key) = name.split_once('=')?;
        let (container_id, ifname) = key.rsplit_once(':')?;
        let key = Key {
            container_id: container_id.to_owned(),
            ifname: ifname.to_owned(),
        };
        Some(Self {
            address: address.parse().ok()?,
            key,
        })
    }

    pub(super) fn remove(&self, dir: &Path) -> Result<(), IpamError> {
        let path = dir.join(name(self.address, &self.key));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(file("remove", path)(error))
            }
            _ => Ok(()),
        }
    }
}

fn name(address: Ipv4Addr, key: &Key) -> String {
    format!("{address}={}:{}", key.container_id, key.ifname)
}

/// All records, without reading a single one. Call with the lock held: what a
/// killed process left half written is removed.
pub(super) fn list(dir: &Path) -> Result<Vec<Held>, IpamError> {
    let mut held = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(file("list", dir))? {
        let entry = entry.map_err(file("list", dir))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(TEMPORARY) {
            std::fs::remove_file(entry.path()).map_err(file("remove", entry.path()))?;
        } else {
            held.extend(Held::parse(name));
        }
    }
    Ok(held)
}

/// Writes a file so that it is seen whole or not at all.
pub(super) fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), IpamError> {
    let temporary = dir.join(format!("{TEMPORARY}{}", std::process::id()));
    let path = dir.join(name);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| std::fs::rename(&temporary, &path));
    written.map_err(file("write", path))
}
