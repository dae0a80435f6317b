//! What an ADD will make: every name, number and address, computed before the
//! first change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::{
    Address, IfIndex, MacAddr, Neighbour, Request, Route, RouteProtocol, Scope, TokenBucket,
    VethEnd,
};
use sha2::{Digest as _, Sha256};

use crate::args::Args;
use crate::config::{Config, GATEWAY_V6, gateway};
use crate::result::{CniResult, Dns, Interface, Ip, Route as ResultRoute};
use crate::runtime::PortMapping;

/// Everything that follows from container id and interface name alone, so
/// that DEL finds it without any memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The host's end: `sw` and 12 hexadecimal digits.
    pub(crate) host_ifname: String,
    host_mac: MacAddr,
    pod_mac: MacAddr,
    /// Candidates for the host's interface number; the pod's is one higher.
    indexes: [u32; ATTEMPTS],
}

/// One attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) identity: Identity,
    pub(crate) ifname: String,
    /// One of each family that the pod gets.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) mtu: u32,
    /// What the pod receives, and what it sends.
    ingress: Option<TokenBucket>,
    egress: Option<TokenBucket>,
    /// Routes that a delegated IPAM plugin wants, through our gateways.
    more_routes: Vec<ResultRoute>,
    /// Whether the host's loopback may send to the pod.
    pub(crate) from_loopback: bool,
    /// Of the host's end.
    pub(crate) group: u32,
    /// For people, on the host's end.
    pub(crate) alias: Option<String>,
}

/// The kernel's group (`IFLA_GROUP`) of all pairs of a network: by it garbage
/// collection tells its own orphans from other networks'. 0 is everybody's.
pub(crate) fn group(network: &str) -> u32 {
    let hash = Sha256::digest(network);
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) | 1 << 31
}

/// Whether the name has the form of [`Identity::host_ifname`].
pub(crate) fn is_host_ifname(name: &str) -> bool {
    name.strip_prefix("sw").is_some_and(|hex| {
        hex.len() == 12 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// One attempt at numbers for the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indexes {
    pub(crate) host: IfIndex,
    pub(crate) pod: IfIndex,
}

/// With 2^27 numbers and a thousand pods, one attempt collides once in 10^5.
const ATTEMPTS: usize = 3;
/// Far above what the kernel counts up to on its own, below `i32::MAX`.
const FIRST_INDEX: u32 = 1 << 28;
const INDEX_MASK: u32 = FIRST_INDEX - 1;
/// The kernel stores the alias in 256 bytes with a NUL (`IFALIASZ`).
const ALIAS_MAX: usize = 255;

impl Identity {
    pub(crate) fn of(container_id: &str, ifname: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(container_id);
        hash.update([0]);
        hash.update(ifname);
        let hash: [u8; 32] = hash.finalize().into();
        let hex = hash.iter().take(6).map(|byte| format!("{byte:02x}"));
        // Unlike the pod's, an equal number of its own: the kernel compares
        // an interface's number with its peer's to tell stacked links.
        let index = |place: usize| {
            let bytes = [
                hash[place],
                hash[place + 1],
                hash[place + 2],
                hash[place + 3],
            ];
            FIRST_INDEX + (u32::from_be_bytes(bytes) & INDEX_MASK & !1)
        };
        Self {
            host_ifname: format!("sw{}", hex.collect::<String>()),
            host_mac: mac(&hash, 6),
            pod_mac: mac(&hash, 12),
            indexes: [index(18), index(22), index(26)],
        }
    }
}

fn mac(hash: &[u8; 32], start: usize) -> MacAddr {
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&hash[start..start + 6]);
    MacAddr::local(bytes)
}

impl Plan {
    pub(crate) fn new(
        identity: Identity,
        args: &Args,
        addresses: Vec<IpAddr>,
        config: &Config,
    ) -> Self {
        let mut identity = identity;
        if let Some(mac) = config.runtime.mac.or(args.mac) {
            identity.pod_mac = mac;
        }
        let alias = args.pod.clone().map(|mut pod| {
            pod.truncate(pod.floor_char_boundary(ALIAS_MAX));
            pod
        });
        Self {
            identity,
            ifname: args.ifname.clone(),
            addresses,
            mtu: config.mtu,
            ingress: config.runtime.ingress,
            egress: config.runtime.egress,
            more_routes: Vec::new(),
            from_loopback: config
                .runtime
                .port_mappings
                .iter()
                .any(PortMapping::serves_loopback),
            group: group(&config.network.name),
            alias,
        }
    }

    /// The same with more routes; a default route there is already.
    pub(crate) fn with_routes(mut self, routes: &[ResultRoute]) -> Self {
        let families: Vec<bool> = self.addresses.iter().map(IpAddr::is_ipv4).collect();
        let more = routes
            .iter()
            .filter(|route| route.dst.prefix() > 0 && families.contains(&route.dst.is_ipv4()));
        // A next hop of theirs is on no link of ours.
        self.more_routes = more
            .map(|route| ResultRoute {
                gw: Some(gateway(route.dst.ip())),
                ..route.clone()
            })
            .collect();
        self
    }

    /// Shapers of the host's end and of the pod's. What the pod sends is held
    /// back where it is sent, so that it waits instead of being dropped, and
    /// nothing has to be removed with the pod.
    pub(crate) fn shapers(&self, indexes: Indexes) -> [Option<Request<'static>>; 2] {
        let shaper = |index, bucket: Option<TokenBucket>| {
            bucket.map(|bucket| Request::qdisc_add(index, &bucket))
        };
        [
            shaper(indexes.host, self.ingress),
            shaper(indexes.pod, self.egress),
        ]
    }

    /// Numbers to try, one pair after the other while they are taken.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = Indexes> {
        self.identity.indexes.into_iter().map(|host| Indexes {
            host: IfIndex(host),
            pod: IfIndex(host + 1),
        })
    }

    pub(crate) fn ends(&self, indexes: Indexes) -> (VethEnd, VethEnd) {
        let end = |name: &str, index, mac| VethEnd {
            name: name.to_owned(),
            index,
            mac,
        };
        (
            end(
                &self.identity.host_ifname,
                indexes.host,
                self.identity.host_mac,
            ),
            end(&self.ifname, indexes.pod, self.identity.pod_mac),
        )
    }

    pub(crate) fn has_v6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// The pod's own addresses, each alone on its link, so nobody can have a
    /// duplicate.
    pub(crate) fn pod_addresses(&self, indexes: Indexes) -> Vec<Address> {
        let link_local = self
            .has_v6()
            .then(|| link_local(indexes.pod, from_mac(self.identity.pod_mac)));
        let own = self.addresses.iter().map(|address| Address {
            no_dad: address.is_ipv6(),
            ..Address::new(indexes.pod, IpNetwork::from(*address))
        });
        link_local.into_iter().chain(own).collect()
    }

    /// The gateway's address is really there, so that it can be asked.
    pub(crate) fn host_address(&self, indexes: Indexes) -> Option<Address> {
        self.has_v6().then(|| link_local(indexes.host, GATEWAY_V6))
    }

    /// The gateway is on the link, and everything else behind it. Owned by
    /// "boot" as if the pod's administrator had made them.
    pub(crate) fn pod_routes(&self, indexes: Indexes) -> Vec<Route> {
        let ours = |mut route: Route, address: IpAddr| {
            route.oif = Some(indexes.pod);
            route.prefsrc = address.is_ipv4().then_some(address);
            route.protocol = RouteProtocol::BOOT;
            route
        };
        let mut routes = Vec::new();
        for &address in &self.addresses {
            let gateway = gateway(address);
            // IPv6 takes a link-local gateway as it is.
            if gateway.is_ipv4() {
                let mut link = Route::to(IpNetwork::from(gateway));
                link.scope = Scope::Link;
                routes.push(ours(link, address));
            }
            let mut default = Route::to(any(address));
            default.gateway = Some(gateway);
            routes.push(ours(default, address));
            let same = |r: &&ResultRoute| r.dst.is_ipv4() == address.is_ipv4();
            for more in self.more_routes.iter().filter(same) {
                let mut route = Route::to(more.dst);
                route.gateway = Some(gateway);
                routes.push(ours(route, address));
            }
        }
        routes
    }

    /// Nobody ever asks for the gateway's hardware address.
    pub(crate) fn pod_neighbours(&self, indexes: Indexes) -> impl Iterator<Item = Neighbour> {
        self.addresses.iter().map(move |address| {
            Neighbour::permanent(indexes.pod, gateway(*address), self.identity.host_mac)
        })
    }

    pub(crate) fn host_routes(&self, indexes: Indexes) -> impl Iterator<Item = Route> {
        self.addresses.iter().map(move |address| {
            let mut route = Route::to(IpNetwork::from(*address));
            route.oif = Some(indexes.host);
            route.scope = Scope::Link;
            route
        })
    }

    pub(crate) fn host_neighbours(&self, indexes: Indexes) -> impl Iterator<Item = Neighbour> {
        let mac = self.identity.pod_mac;
        let link_local = self.has_v6().then(|| IpAddr::from(from_mac(mac)));
        let all = self.addresses.iter().copied().chain(link_local);
        all.map(move |address| Neighbour::permanent(indexes.host, address, mac))
    }

    pub(crate) fn result(&self, sandbox: &str, dns: Dns) -> CniResult {
        let interface = |name: &str, mac: MacAddr, sandbox: &str| Interface {
            name: name.to_owned(),
            mac: mac.to_string(),
            mtu: Some(self.mtu),
            sandbox: sandbox.to_owned(),
            ..Interface::default()
        };
        CniResult {
            interfaces: vec![
                interface(&self.identity.host_ifname, self.identity.host_mac, ""),
                interface(&self.ifname, self.identity.pod_mac, sandbox),
            ],
            ips: self.addresses.iter().copied().map(result_ip).collect(),
            routes: self
                .addresses
                .iter()
                .copied()
                .map(result_route)
                .chain(self.more_routes.iter().cloned())
                .collect(),
            dns,
        }
    }
}

fn link_local(ifindex: IfIndex, ip: Ipv6Addr) -> Address {
    let network = IpNetwork::new(ip.into(), 64).expect("64 bits fit");
    Address {
        scope: Scope::Link,
        no_dad: true,
        ..Address::new(ifindex, network)
    }
}

/// RFC 4291, appendix A: the modified EUI-64 of a hardware address.
fn from_mac(mac: MacAddr) -> Ipv6Addr {
    let mut bytes = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
    bytes[8..11].copy_from_slice(&mac.0[..3]);
    bytes[13..].copy_from_slice(&mac.0[3..]);
    bytes[8] ^= 0x02;
    Ipv6Addr::from(bytes)
}

fn result_ip(address: IpAddr) -> Ip {
    Ip {
        version: None,
        interface: Some(1),
        address: IpNetwork::from(address),
        gateway: Some(gateway(address)),
    }
}

fn result_route(address: IpAddr) -> ResultRoute {
    ResultRoute {
        dst: any(address),
        gw: Some(gateway(address)),
        more: serde_json::Map::new(),
    }
}

/// Everything of the family of an address.
fn any(address: IpAddr) -> IpNetwork {
    let unspecified = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    IpNetwork::new(unspecified, 0).expect("length 0 fits both families")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(pod: Option<&str>) -> Plan {
        let args = Args {
            container_id: "c1".into(),
            ifname: "eth0".into(),
            netns: None,
            pod: pod.map(str::to_owned),
            ips: Vec::new(),
            mac: None,
            own_netns: false,
        };
        Plan::new(
            Identity::of("c1", "eth0"),
            &args,
            vec!["10.1.2.3".parse().unwrap(), "fd00::3".parse().unwrap()],
            &config(),
        )
    }

    fn config() -> Config {
        let conf = br#"{"cniVersion":"1.0.0","name":"seaway","type":"seaway-cni","mtu":1450,
            "ipam":{"type":"seaway","ranges":[{"subnet":"10.1.2.0/24"}]}}"#;
        Config::parse(conf).unwrap()
    }

    #[test]
    fn networks_have_groups_of_their_own_and_names_are_recognised() {
        assert_eq!(group("seaway"), group("seaway"));
        assert_ne!(group("seaway"), group("other"));
        assert!(is_host_ifname(&Identity::of("c1", "eth0").host_ifname));
        for foreign in [
            "sw0",
            "swp1",
            "swec43057c07a",
            "swec43057c07aaa",
            "swEC43057c07aa",
        ] {
            assert!(!is_host_ifname(foreign), "{foreign}");
        }
    }

    #[test]
    fn identity_is_stable_and_of_the_pair() {
        // Written down: DEL of a later version must find these names.
        assert_eq!(Identity::of("c1", "eth0").host_ifname, "swec43057c07aa");
        assert_eq!(Identity::of("c1", "eth0"), Identity::of("c1", "eth0"));
        assert_ne!(Identity::of("c1", "eth0"), Identity::of("c1", "eth1"));
        assert_ne!(Identity::of("c1e", "th0"), Identity::of("c1", "eth0"));
        assert!(Identity::of("c1", "eth0").host_ifname.len() <= 15);
    }

    #[test]
    fn numbers_fit_the_kernels_int_and_the_two_ends_differ() {
        for n in 0..500 {
            let identity = Identity::of(&format!("c{n}"), "eth0");
            let plan = Plan {
                identity,
                ..plan(None)
            };
            for Indexes { host, pod } in plan.indexes() {
                assert!(host.0 >= FIRST_INDEX && i32::try_from(pod.0).is_ok());
                assert_eq!(pod.0, host.0 + 1);
            }
        }
    }

    #[test]
    fn result_names_both_ends() {
        let result = plan(None).result("/run/netns/p1", Dns::default());
        assert_eq!(result.interfaces[0].name, "swec43057c07aa");
        assert_eq!(result.interfaces[1].sandbox, "/run/netns/p1");
        assert_eq!(result.ips[0].address.to_string(), "10.1.2.3/32");
        assert_eq!(result.ips[0].interface, Some(1));
        assert_eq!(result.ips[1].address.to_string(), "fd00::3/128");
        assert_eq!(result.routes[0].dst.to_string(), "0.0.0.0/0");
        assert_eq!(result.routes[1].gw, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn an_alias_is_cut_between_characters() {
        let long = "ü".repeat(200);
        assert_eq!(plan(Some(&long)).alias.unwrap().len(), 254);
    }
}
