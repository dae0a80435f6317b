//! One record: a file whose name says who holds which address.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{IpamError, file};

/// Which interface of which container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// `CNI_CONTAINERID`; contains no `:`.
    pub container_id: String,
    /// `CNI_IFNAME`; contains no `:` and no `/`.
    pub ifname: String,
}

/// What a record holds besides its name, for people, for garbage collection,
/// and so that DEL knows what else there is to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who holds the address.
    #[serde(flatten)]
    pub key: Key,
    /// `CNI_NETNS`.
    pub netns: String,
    /// Device and inode of the namespace.
    pub netns_id: (u64, u64),
    /// Name of the host's end of the veth.
    pub host_ifname: String,
    /// `namespace/name` of the pod, where the runtime told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Things outside the interface that belong to the attachment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<Extra>,
    /// Ports of the host that lead here, so that they can be written again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<RecordedPort>,
    /// The other plugin that gave the address, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipam: Option<RecordedIpam>,
}

/// A port of the host, as the runtime asked for it. The address that it leads
/// to is the record's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedPort {
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Absent for all of the host's addresses; `0.0.0.0` and `::` for all of
    /// one family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
    /// On the host.
    pub host_port: u16,
    /// In the pod.
    pub container_port: u16,
}

/// How to give an address back to the plugin that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedIpam {
    /// `ipam.type`.
    pub kind: String,
    /// `CNI_PATH`.
    pub path: String,
    /// `CNI_ARGS`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub args: String,
    /// The whole configuration that it was called with.
    pub conf: String,
}

/// Something that does not vanish with the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Extra {
    /// Elements in the firewall's hostPort maps.
    HostPorts,
}

/// A record seen in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The address.
    pub address: IpAddr,
    /// Who holds it.
    pub key: Key,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Content<'a> {
    boot_id: &'a str,
    address: IpAddr,
    #[serde(flatten)]
    record: &'a Record,
}

/// Prefix of half-written files. They are only made under the lock, so one
/// that is seen under the lock has been left by a killed process.
const TEMPORARY: &str = ".new-";

impl Record {
    pub(super) fn write(
        &self,
        dir: &Path,
        address: IpAddr,
        boot_id: &str,
    ) -> Result<(), IpamError> {
        let content = Content {
            boot_id,
            address,
            record: self,
        };
        let text = serde_json::to_vec(&content).expect("all keys are text");
        replace(dir, &name(address, &self.key), &text)
    }
}

impl Held {
    /// `None`: not a record, but somebody's file.
    pub(crate) fn parse(name: &str) -> Option<Self> {
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

    /// What the file says besides; `None` when it is damaged.
    pub(super) fn content(&self, dir: &Path) -> Option<Record> {
        let text = std::fs::read(dir.join(name(self.address, &self.key))).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// For people: `namespace/name` of the pod, where the record says it, and the container.
    pub(super) fn describe(&self, dir: &Path) -> String {
        let Key {
            container_id,
            ifname,
        } = &self.key;
        let container = format!("container {container_id}:{ifname}");
        match self.content(dir).and_then(|record| record.pod) {
            Some(pod) => format!("{pod} ({container})"),
            None => container,
        }
    }

    pub(super) fn remove(&self, dir: &Path) -> Result<(), IpamError> {
        remove(&dir.join(name(self.address, &self.key)))
    }
}

fn name(address: IpAddr, key: &Key) -> String {
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
            remove(&entry.path())?;
        } else {
            held.extend(Held::parse(name));
        }
    }
    Ok(held)
}

/// An attachment's records. Needs no lock, since each appears and disappears at once, and
/// leaves alone what others may be writing.
pub(super) fn list_of(dir: &Path, key: &Key) -> Result<Vec<Held>, IpamError> {
    let end = format!("={}:{}", key.container_id, key.ifname);
    let mut held = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(file("list", dir))? {
        let name = entry.map_err(file("list", dir))?.file_name();
        let mine = name.to_str().filter(|name| name.ends_with(&end));
        held.extend(mine.and_then(Held::parse));
    }
    Ok(held)
}

/// Absent is fine.
pub(super) fn remove(path: &Path) -> Result<(), IpamError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Writes a file so that it is seen whole or not at all.
pub(super) fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<(), IpamError> {
    let temporary = dir.join(format!("{TEMPORARY}{}", std::process::id()));
    let path = dir.join(name);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| std::fs::rename(&temporary, &path));
    if written.is_err() {
        // May not be there at all; what was not written is the error to tell.
        drop(std::fs::remove_file(&temporary));
    }
    written.map_err(file("write", path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_file_name_is_a_record_or_somebody_elses(text in "\\PC{0,60}|[0-9a-f:.=]{0,60}") {
            drop(Held::parse(&text));
        }

        #[test]
        fn a_record_is_found_by_its_name(
            address in any::<IpAddr>(),
            container_id in "[A-Za-z0-9][A-Za-z0-9_.-]{0,179}",
            ifname in "[a-z0-9.=@_-]{1,15}",
        ) {
            let key = Key { container_id, ifname };
            let name = name(address, &key);
            prop_assert!(name.len() <= 255);
            prop_assert_eq!(Held::parse(&name), Some(Held { address, key }));
        }

        #[test]
        fn any_content_is_read_or_damaged(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            let held = Held::parse("10.0.0.2=c:eth0").unwrap();
            std::fs::write(dir.path().join("10.0.0.2=c:eth0"), text).unwrap();
            prop_assert_eq!(held.content(dir.path()), None);
        }
    }
}
