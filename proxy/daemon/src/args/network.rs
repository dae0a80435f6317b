//! Flags about the pod network.

use std::net::IpAddr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use ipnetwork::IpNetwork;
use seaway_podnet::{PodRoutes, Settings, VxlanSettings};

use super::BadConfig;
use super::parse::network;

/// What IPv4 needs of every link (RFC 791, section 3.1).
const MIN_MTU: i64 = 576;
/// What IPv6 needs of every link (RFC 8200, section 5).
const MIN_MTU_V6: u32 = 1280;
/// The length field of an IP packet.
const MAX_MTU: i64 = 65_535;
/// `IFNAMSIZ` without the NUL.
const LINK_NAME_MAX: usize = 15;

/// How pods reach other nodes and the world.
#[derive(Clone, Debug, Args)]
pub struct NetworkArgs {
    /// How packets for other nodes' pods travel
    ///
    /// auto: through VXLAN until a probe has shown that pod addresses pass directly, for each
    /// node and family. vxlan: always so. direct: always by plain routes.
    #[arg(
        long,
        env = "SEAWAY_POD_ROUTES",
        value_name = "MODE",
        default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "vxlan", "direct"])
            .try_map(|mode| mode.parse::<PodRoutes>())
    )]
    pub pod_routes: PodRoutes,
    /// UDP port of VXLAN, the same on all nodes
    #[arg(
        long,
        env = "SEAWAY_VXLAN_PORT",
        value_name = "PORT",
        default_value = "8472",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    pub vxlan_port: u16,
    /// VXLAN network identifier, the same on all nodes
    #[arg(
        long,
        env = "SEAWAY_VXLAN_VNI",
        value_name = "NUMBER",
        default_value = "83",
        value_parser = clap::value_parser!(u32).range(1..1 << 24)
    )]
    pub vxlan_vni: u32,
    /// Address of this node for other nodes, at most one of each family; the InternalIPs of its
    /// Node object if not given
    ///
    /// VXLAN runs over IPv4 if one of them is; it must then be an InternalIP of the Node, too.
    #[arg(
        long,
        env = "SEAWAY_NODE_IP",
        value_name = "ADDRESS",
        value_delimiter = ',',
        value_parser = node_ip
    )]
    pub node_ip: Vec<IpAddr>,
    /// The link to other nodes; if not given, the one with the node's address, else the default
    /// route's
    ///
    /// If named, the first InternalIP of a Node (this one or another) that it leads to counts,
    /// and packets for it take this link. It does not lead where another link has a narrower
    /// route in the main table; where it has but its default route, other InternalIPs go first.
    #[arg(long, env = "SEAWAY_UPLINK", value_name = "LINK", value_parser = link)]
    pub uplink: Option<String>,
    /// Destinations besides --cluster-cidr that see a pod's own address
    #[arg(
        long,
        env = "SEAWAY_NON_MASQUERADE_CIDR",
        value_name = "CIDR",
        value_delimiter = ',',
        value_parser = network
    )]
    pub non_masquerade_cidr: Vec<IpNetwork>,
    /// MTU of pod interfaces in bytes; what fits through the uplink if not given, less what
    /// VXLAN takes
    #[arg(
        long,
        env = "SEAWAY_MTU",
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(MIN_MTU..=MAX_MTU)
    )]
    pub mtu: Option<u32>,
    /// Whether a pod that comes again to this node under its name gets the address that it had
    ///
    /// Remembered over boots in /var/lib/seaway/cni, for 4096 pods in each family, the latest.
    /// Where there is no other address left, a pod that is not here loses its own.
    #[arg(
        long,
        env = "SEAWAY_STICKY_ADDRESSES",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub sticky_addresses: bool,
}

impl NetworkArgs {
    /// What these flags mean, together with `--cluster-cidr`.
    pub(super) fn settings(&self, cluster_cidrs: &[IpNetwork]) -> Result<Settings, BadConfig> {
        if cluster_cidrs.is_empty() {
            return Err(BadConfig::NoClusterCidr);
        }
        if let [first, others @ ..] = &self.node_ip[..]
            && let Some(second) = others.iter().find(|ip| ip.is_ipv4() == first.is_ipv4())
        {
            return Err(BadConfig::NodeIpsOfOneFamily(*first, *second));
        }
        if let [first, second, third, ..] = self.node_ip[..] {
            // The first two differ in family, so the third is like one of them.
            let twin = if third.is_ipv4() == first.is_ipv4() {
                first
            } else {
                second
            };
            return Err(BadConfig::NodeIpsOfOneFamily(twin, third));
        }
        let v6 = cluster_cidrs.iter().find(|cidr| cidr.is_ipv6());
        if let (Some(mtu), Some(cidr)) = (self.mtu.filter(|mtu| *mtu < MIN_MTU_V6), v6) {
            return Err(BadConfig::MtuBelowIpv6(mtu, *cidr));
        }
        Ok(Settings {
            mode: self.pod_routes,
            vxlan: VxlanSettings {
                port: self.vxlan_port,
                vni: self.vxlan_vni,
                ..VxlanSettings::default()
            },
            node_ips: self.node_ip.clone(),
            uplink: self.uplink.clone(),
            cluster_cidrs: cluster_cidrs.to_vec(),
            non_masquerade_cidrs: self.non_masquerade_cidr.clone(),
            mtu: self.mtu,
            sticky_addresses: self.sticky_addresses,
        })
    }
}

fn node_ip(value: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = value
        .parse()
        .map_err(|e| format!("{e}; expected an address, such as 192.0.2.11"))?;
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local {
        return Err("other nodes cannot send to this address".to_owned());
    }
    Ok(ip)
}

/// As the kernel takes it (`dev_valid_name`, net/core/dev.c).
fn link(value: &str) -> Result<String, String> {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace();
    let fits = (1..=LINK_NAME_MAX).contains(&value.len());
    if !fits || value.contains(odd) || value == "." || value == ".." {
        return Err(format!(
            "no link can have this name; expected 1 to {LINK_NAME_MAX} bytes, such as eth0"
        ));
    }
    Ok(value.to_owned())
}
