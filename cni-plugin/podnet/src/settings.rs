//! What the operator has chosen, and which paths have been proven.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

/// How packets for pods of other nodes travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodRoutes {
    /// VXLAN to a peer until a probe has shown that pod addresses pass directly.
    ///
    /// A shared subnet does not prove it: clouds drop packets from addresses
    /// that they have not given out.
    #[default]
    Auto,
    /// Always VXLAN.
    Vxlan,
    /// Always plain routes by the peer's InternalIP.
    Direct,
}

/// The text is not one of `auto`, `vxlan` and `direct`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of auto, vxlan, direct")]
pub struct UnknownPodRoutes(String);

impl PodRoutes {
    /// As in flags and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Vxlan => "vxlan",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for PodRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PodRoutes {
    type Err = UnknownPodRoutes;

    fn from_str(text: &str) -> Result<Self, UnknownPodRoutes> {
        [Self::Auto, Self::Vxlan, Self::Direct]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| UnknownPodRoutes(text.to_owned()))
    }
}

/// The overlay, as all nodes of a cluster must have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanSettings {
    /// Name of the device, at most 15 bytes.
    pub device: String,
    /// UDP port.
    pub port: u16,
    /// VXLAN network identifier, below 2^24 (RFC 7348).
    pub vni: u32,
}

impl Default for VxlanSettings {
    fn default() -> Self {
        Self {
            device: "seaway.vx".to_owned(),
            // The Linux default, from before IANA gave out 4789; what peers use too.
            port: 8472,
            vni: 83,
        }
    }
}

/// What the operator has chosen for the pod network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How packets for pods of other nodes travel.
    pub mode: PodRoutes,
    /// The overlay, unless the mode is direct.
    pub vxlan: VxlanSettings,
    /// This node's addresses; empty: the InternalIPs of its Node object. The overlay runs
    /// over IPv4 if there is one.
    pub node_ips: Vec<IpAddr>,
    /// The link to the other nodes; found if not given.
    pub uplink: Option<String>,
    /// All pod addresses of the cluster: destinations that are not masqueraded.
    pub cluster_cidrs: Vec<IpNetwork>,
    /// Further destinations that see the pod's own address.
    pub non_masquerade_cidrs: Vec<IpNetwork>,
    /// MTU of pod interfaces, bytes; found if not given.
    pub mtu: Option<u32>,
    /// Whether a pod that comes again gets the address that it had.
    pub sticky_addresses: bool,
}

/// Peers to which pod addresses are proven to pass without the overlay, by family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(BTreeSet<(String, Family)>);

impl Paths {
    /// Whether the path to `node` has been proven for `family`.
    pub fn is_direct(&self, node: &str, family: Family) -> bool {
        // A set of pairs cannot be asked with a borrowed name; there are few of them.
        self.0.contains(&(node.to_owned(), family))
    }

    /// Takes note of what has been shown; tells whether that is news.
    pub fn set(&mut self, node: &str, family: Family, direct: bool) -> bool {
        let key = (node.to_owned(), family);
        if direct {
            self.0.insert(key)
        } else {
            self.0.remove(&key)
        }
    }
}

impl FromIterator<(String, Family)> for Paths {
    /// The proven ones.
    fn from_iter<I: IntoIterator<Item = (String, Family)>>(proven: I) -> Self {
        Self(proven.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in [PodRoutes::Auto, PodRoutes::Vxlan, PodRoutes::Direct] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "overlay".parse::<PodRoutes>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"overlay\" is none of auto, vxlan, direct"
        );
    }

    #[test]
    fn a_path_is_proven_for_one_peer_and_family() {
        let mut paths = Paths::default();
        assert!(paths.set("b", Family::V4, true));
        assert!(!paths.set("b", Family::V4, true));
        assert!(paths.is_direct("b", Family::V4));
        assert!(!paths.is_direct("b", Family::V6));
        assert!(!paths.is_direct("c", Family::V4));
        assert!(paths.set("b", Family::V4, false));
        assert_eq!(paths, Paths::default());
    }
}
