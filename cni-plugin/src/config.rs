//! The network configuration from standard input (CNI specification,
//! section 3), read into values that need no further checking.

mod attachments;
mod field;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};

pub(crate) use self::attachments::Attachments;
use self::field::{absolute, is_file_name, known, optional_path};
pub(crate) use self::field::{config, known_in_any_case, optional, read, required, unsupported};
use crate::args::is_identifier;
use crate::error::Error;
use crate::ipam::{Pools, RangeSpec, Store};
use crate::result::{CniResult, Dns};
use crate::runtime::Runtime;
use crate::version::Version;

/// What every verb needs, and DEL is content with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) version: Version,
    pub(crate) name: String,
    /// Folder of the address records.
    pub(crate) data_dir: PathBuf,
    /// Another plugin that hands out the addresses.
    pub(crate) delegate: Option<String>,
}

/// The whole configuration of a network of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) network: Network,
    /// Of both ends, in bytes.
    pub(crate) mtu: u32,
    /// Empty when another plugin hands out the addresses.
    pub(crate) pools: Pools,
    /// Folder where pods' addresses are remembered.
    pub(crate) sticky: Option<PathBuf>,
    /// Where the daemon says that the pod network serves; without it nobody has to say so.
    pub(crate) pod_network_state: Option<PathBuf>,
    pub(crate) dns: Dns,
    pub(crate) prev_result: Option<CniResult>,
    /// What the runtime wants for this pod.
    pub(crate) runtime: Runtime,
}

pub(crate) type Object = Map<String, Value>;

const POD_NETWORK_STATE: &str = "podNetworkState";
pub(crate) const DEFAULT_DATA_DIR: &str = "/run/seaway/cni";
/// What the kernel gives a veth that nobody sets.
const DEFAULT_MTU: u32 = 1500;
/// RFC 791: every link carries 68 bytes. `ETH_MAX_MTU` of the kernel.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65535;
/// RFC 8200, section 5; below it the kernel switches IPv6 off.
const IPV6_MIN_MTU: u32 = 1280;
/// The specification's keys, ours, and what belongs to a list of plugins: a
/// `.conf` of one plugin may have those, too.
const KEYS: &[&str] = &[
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "name",
    "type",
    "capabilities",
    "runtimeConfig",
    "args",
    "prevResult",
    "mtu",
    "dataDir",
    "ipMasq",
    POD_NETWORK_STATE,
    "ipam",
    "dns",
];
const IPAM_KEYS: &[&str] = &["type", "ranges", "dataDir", "sticky", "stickyDir"];
const OWN_IPAM: &str = "seaway";
const DEFAULT_STICKY_DIR: &str = "/var/lib/seaway/cni";
const DNS_KEYS: &[&str] = &["nameservers", "domain", "search", "options"];
const RANGE_KEYS: &[&str] = &["subnet", "rangeStart", "rangeEnd"];

/// The configuration as an object, with its name and version checked.
pub(crate) fn parse(stdin: &[u8]) -> Result<(Object, Version, String), Error> {
    let value: Value = serde_json::from_slice(stdin).map_err(|source| Error::Json { source })?;
    let Value::Object(object) = value else {
        return Err(config("(top level)", "is not an object"));
    };
    let name: String = required(&object, "name", "name")?;
    if !is_identifier(&name) {
        let why = format!("{name:?} is not letters, digits, '_', '.' and '-'");
        return Err(config("name", why));
    }
    let version: Option<String> = optional(&object, "cniVersion", "cniVersion")?;
    // The specification: a configuration without a version is one of 0.1.0.
    let version = Version::parse(version.as_deref().unwrap_or("0.1.0"))?;
    Ok((object, version, name))
}

impl Network {
    /// Takes from a configuration what DEL needs and overlooks all else: it
    /// may be an old one, and a pod must go nevertheless.
    pub(crate) fn lenient(stdin: &[u8]) -> Result<Self, Error> {
        let (object, version, name) = parse(stdin)?;
        let ipam = object.get("ipam");
        let kind = ipam.and_then(|ipam| ipam.get("type")?.as_str());
        let delegate = kind.filter(|kind| *kind != OWN_IPAM && is_file_name(kind));
        let data_dir = ipam.and_then(|ipam| ipam.get("dataDir"));
        // That of another plugin is no folder of ours.
        let data_dir = data_dir.filter(|_| delegate.is_none());
        let data_dir = object.get("dataDir").or(data_dir);
        let data_dir = data_dir
            .and_then(Value::as_str)
            .unwrap_or(DEFAULT_DATA_DIR)
            .into();
        Ok(Self {
            version,
            name,
            data_dir,
            delegate: delegate.map(str::to_owned),
        })
    }
}

impl Config {
    /// The records of the network.
    pub(crate) fn store(&self) -> Result<Store, Error> {
        let store = Store::open(&self.network.data_dir, &self.network.name)?;
        Ok(match &self.sticky {
            Some(dir) => store.with_sticky(dir, &self.network.name),
            None => store,
        })
    }
}

impl Config {
    /// Reads a configuration of which nothing may be misunderstood.
    ///
    /// # Errors
    /// Code 7 for an unknown key or a wrong value, code 2 for a value that is
    /// right but not supported; both name the key.
    pub(crate) fn parse(stdin: &[u8]) -> Result<Self, Error> {
        let (object, version, name) = parse(stdin)?;
        known(&object, "", KEYS)?;
        reject_unsupported(&object)?;
        let runtime = Runtime::parse(&object)?;
        let ipam: Object = required(&object, "ipam", "ipam")?;
        let kind: String = required(&ipam, "type", "ipam.type")?;
        let delegate = (kind != OWN_IPAM).then_some(kind);
        if let Some(kind) = &delegate
            && !is_file_name(kind)
        {
            return Err(config("ipam.type", format!("{kind:?} is not a file name")));
        }
        let mtu = optional(&object, "mtu", "mtu")?.unwrap_or(DEFAULT_MTU);
        if !MTU_RANGE.contains(&mtu) {
            let (low, high) = (MTU_RANGE.start(), MTU_RANGE.end());
            return Err(config("mtu", format!("{mtu} is not from {low} to {high}")));
        }
        let (pools, data_dir, sticky) = if delegate.is_some() {
            (
                Pools::default(),
                absolute(&object, "dataDir", DEFAULT_DATA_DIR)?,
                None,
            )
        } else {
            known(&ipam, "ipam.", IPAM_KEYS)?;
            let ranges = runtime.ranges.clone().unwrap_or_default();
            let pools = pools(&ipam)?.overridden_by(ranges);
            (pools, data_dir(&ipam)?, sticky(&ipam)?)
        };
        if pools.has_v6() && mtu < IPV6_MIN_MTU {
            let why = format!("{mtu} is too small for IPv6, which needs {IPV6_MIN_MTU}");
            return Err(config("mtu", why));
        }
        let prev = object.get("prevResult").filter(|value| !value.is_null());
        Ok(Self {
            network: Network {
                version,
                name,
                data_dir,
                delegate,
            },
            mtu,
            pools,
            sticky,
            pod_network_state: optional_path(&object, POD_NETWORK_STATE)?,
            dns: dns(&object)?,
            prev_result: prev.map(CniResult::parse).transpose()?,
            runtime,
        })
    }
}

fn dns(object: &Object) -> Result<Dns, Error> {
    let given: Object = optional(object, "dns", "dns")?.unwrap_or_default();
    known(&given, "dns.", DNS_KEYS)?;
    Ok(optional(object, "dns", "dns")?.unwrap_or_default())
}

fn data_dir(ipam: &Object) -> Result<PathBuf, Error> {
    absolute(ipam, "ipam.dataDir", DEFAULT_DATA_DIR)
}

/// Where to remember pods' addresses, if that is wanted.
fn sticky(ipam: &Object) -> Result<Option<PathBuf>, Error> {
    let dir = absolute(ipam, "ipam.stickyDir", DEFAULT_STICKY_DIR)?;
    let wanted = optional(ipam, "sticky", "ipam.sticky")?.unwrap_or(false);
    Ok(wanted.then_some(dir))
}

fn pools(ipam: &Object) -> Result<Pools, Error> {
    let ranges: Vec<Object> = required(ipam, "ranges", "ipam.ranges")?;
    let mut specs = Vec::new();
    for (place, range) in ranges.iter().enumerate() {
        let path = format!("ipam.ranges[{place}].");
        known(range, &path, RANGE_KEYS)?;
        let ip = |key: &str| optional::<IpAddr>(range, key, &format!("{path}{key}"));
        let spec = RangeSpec {
            subnet: required::<IpNetwork>(range, "subnet", &format!("{path}subnet"))?,
            start: ip("rangeStart")?,
            end: ip("rangeEnd")?,
        };
        let special = spec.refuse_special();
        special.map_err(|why| config(&format!("{path}subnet"), why))?;
        specs.push(spec);
    }
    Pools::new(&specs).map_err(|why| config("ipam.ranges", why))
}

/// Fields of the specification that would be promises we do not keep.
fn reject_unsupported(object: &Object) -> Result<(), Error> {
    if optional::<bool>(object, "ipMasq", "ipMasq")? == Some(true) {
        // Masquerade is the node's, for all pods at once.
        return Err(unsupported("ipMasq", "true"));
    }
    Ok(())
}

/// Pods' next hop. Link-local, so the same on all nodes, no address of the
/// pod CIDR is spent on it, and it never changes.
pub(crate) const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The same in IPv6.
pub(crate) const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The next hop of the pod's packets in the family of its address.
pub(crate) fn gateway(address: IpAddr) -> IpAddr {
    if address.is_ipv4() {
        GATEWAY_V4.into()
    } else {
        GATEWAY_V6.into()
    }
}

#[cfg(test)]
mod tests;
