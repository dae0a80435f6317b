//! What an ADD will make: every name, number and address, computed before the
//! first change.

mod identity;
mod kernel;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use seaway_netlink::{IfIndex, Link, MacAddr, Request, TokenBucket, VethEnd};

pub(crate) use self::identity::{Identity, Indexes, group, is_group, is_host_ifname};
pub(crate) use self::kernel::local_route;
use crate::args::Args;
use crate::config::{Config, gateway};
use crate::result::{CniResult, Dns, Interface, Ip, Route as ResultRoute};
use crate::runtime::PortMapping;

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

/// The kernel stores the alias in 256 bytes with a NUL (`IFALIASZ`).
const ALIAS_MAX: usize = 255;

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

    /// The two ends alone, up, for who finds an address on them.
    pub(crate) fn without_addresses(identity: Identity, args: &Args, config: &Config) -> Self {
        Self {
            ingress: None,
            egress: None,
            ..Self::new(identity, args, Vec::new(), config)
        }
    }

    /// What is left to plan for a pair that exists; the pod's MAC where it is
    /// known, which may be another than the one it would get.
    pub(crate) fn of_record(
        mut identity: Identity,
        pod_mac: Option<MacAddr>,
        addresses: Vec<IpAddr>,
        link: &Link,
    ) -> Self {
        identity.pod_mac = pod_mac.unwrap_or(identity.pod_mac);
        Self {
            identity,
            ifname: String::new(),
            addresses,
            mtu: link.mtu,
            ingress: None,
            egress: None,
            more_routes: Vec::new(),
            from_loopback: false,
            group: link.group,
            alias: None,
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
mod tests;
