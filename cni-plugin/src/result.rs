//! The result of an ADD, in the form of each version (CNI specification,
//! section 5 "Success").

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::version::Version;

/// What a plugin did; also what a `prevResult` holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct CniResult {
    #[serde(default)]
    pub(crate) interfaces: Vec<Interface>,
    #[serde(default)]
    pub(crate) ips: Vec<Ip>,
    #[serde(default)]
    pub(crate) routes: Vec<Route>,
    #[serde(default)]
    pub(crate) dns: Dns,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interface {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) mac: String,
    /// Bytes; since 1.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    /// The runtime's own `CNI_NETNS`; empty for an interface of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) sandbox: String,
    /// Since 1.1.0.
    #[serde(
        default,
        rename = "socketPath",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) socket_path: Option<String>,
    /// Since 1.1.0.
    #[serde(default, rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub(crate) pci_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ip {
    /// `4` or `6`; only before 1.0.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Index into the interfaces; 0 is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interface: Option<usize>,
    pub(crate) address: IpNetwork,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) dst: IpNetwork,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gw: Option<IpAddr>,
    /// `mtu`, `advmss`, `priority`, `table`, `scope`: since 1.1.0.
    #[serde(flatten)]
    pub(crate) more: serde_json::Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dns {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nameservers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) search: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<String>,
}

/// The whole of one family, before 0.3.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OldIp {
    ip: IpNetwork,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

/// A result before 0.3.0: one address of each family, no interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OldWire {
    #[serde(default, rename = "cniVersion")]
    cni_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip4: Option<OldIp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip6: Option<OldIp>,
    #[serde(default, skip_serializing_if = "is_default")]
    dns: Dns,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Ip>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "is_default")]
    dns: Dns,
}

fn is_default(dns: &Dns) -> bool {
    *dns == Dns::default()
}

impl CniResult {
    /// The text for standard output, in the form that `version` prescribes.
    pub(crate) fn render(mut self, version: Version) -> String {
        for ip in &mut self.ips {
            let number = if ip.address.is_ipv4() { "4" } else { "6" };
            ip.version = (version < Version::V1_0_0).then(|| number.to_owned());
        }
        if version < Version::V1_1_0 {
            for interface in &mut self.interfaces {
                (interface.mtu, interface.socket_path, interface.pci_id) = (None, None, None);
            }
            for route in &mut self.routes {
                route.more.clear();
            }
        }
        if version < Version::V0_3_0 {
            return self.render_old(version);
        }
        let wire = Wire {
            cni_version: version.as_str(),
            interfaces: self.interfaces,
            ips: self.ips,
            routes: self.routes,
            dns: self.dns,
        };
        serde_json::to_string(&wire).expect("all keys are text")
    }

    fn render_old(self, version: Version) -> String {
        let family = |v4: bool| {
            let routes = self.routes.iter().filter(|r| r.dst.is_ipv4() == v4);
            let first = self.ips.iter().find(|ip| ip.address.is_ipv4() == v4)?;
            Some(OldIp {
                ip: first.address,
                gateway: first.gateway,
                routes: routes.cloned().collect(),
            })
        };
        let wire = OldWire {
            cni_version: version.as_str().to_owned(),
            ip4: family(true),
            ip6: family(false),
            dns: self.dns.clone(),
        };
        serde_json::to_string(&wire).expect("all keys are text")
    }

    /// Reads a `prevResult`, in the form of any version that we speak.
    pub(crate) fn parse(value: &Value) -> Result<Self, Error> {
        let invalid = |why| Error::Config {
            key: "prevResult".to_owned(),
            why,
        };
        if !value.is_object() {
            return Err(invalid("is not an object".to_owned()));
        }
        let unreadable = |error: serde_json::Error| invalid(error.to_string());
        if ["ip4", "ip6"].iter().any(|key| value.get(key).is_some()) {
            return Ok(OldWire::deserialize(value).map_err(unreadable)?.into());
        }
        let result = Self::deserialize(value).map_err(unreadable)?;
        let count = result.interfaces.len();
        match result
            .ips
            .iter()
            .find(|ip| ip.interface.is_some_and(|index| index >= count))
        {
            Some(ip) => Err(invalid(format!(
                "{} is on an interface that is not listed",
                ip.address
            ))),
            None => Ok(result),
        }
    }

    /// Addresses and nothing else.
    pub(crate) fn of_addresses(addresses: &[IpAddr]) -> Self {
        let ip = |address: &IpAddr| Ip {
            version: None,
            interface: None,
            address: IpNetwork::from(*address),
            gateway: None,
        };
        Self {
            ips: addresses.iter().map(ip).collect(),
            ..Self::default()
        }
    }

    /// Puts this plugin's result behind an earlier one's.
    pub(crate) fn append(&mut self, mut ours: Self) {
        for ip in &mut ours.ips {
            ip.interface = ip.interface.map(|index| index + self.interfaces.len());
        }
        self.interfaces.append(&mut ours.interfaces);
        self.ips.append(&mut ours.ips);
        self.routes.append(&mut ours.routes);
        if self.dns == Dns::default() {
            self.dns = ours.dns;
        }
    }
}

impl Dns {
    /// This, or where it says nothing, the other.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::default() { other } else { self }
    }
}

impl From<OldWire> for CniResult {
    fn from(old: OldWire) -> Self {
        let mut result = Self {
            dns: old.dns,
            ..Self::default()
        };
        for family in [old.ip4, old.ip6].into_iter().flatten() {
            result.ips.push(Ip {
                version: None,
                interface: None,
                address: family.ip,
                gateway: family.gateway,
            });
            result.routes.extend(family.routes);
        }
        result
    }
}

#[cfg(test)]
mod tests;
