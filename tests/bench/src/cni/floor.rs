//! The netlink work of an attachment in this process: what nobody can be faster than.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use ipnetwork::IpNetwork;
use nix::sched::{CloneFlags, setns};
use seaway_firewall::Firewall;
use seaway_netlink::{
    Address, Family, IfIndex, MacAddr, Neighbour, Netns, Request, Route, RouteProtocol, Scope,
    Socket, VethEnd, VethPair,
};

/// The first of the numbers that interfaces get here.
const FIRST: u32 = 1 << 20;
const GATEWAY: [u8; 4] = [169, 254, 1, 1];

/// One thread's way to do it, bound to the namespace where it was opened.
pub(super) struct Bare {
    host: Socket,
    home: Netns,
}

/// A number for the next pair.
pub(super) fn next() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed) % 65_000
}

impl Bare {
    pub(super) fn open() -> Result<Self> {
        Ok(Self {
            host: Socket::open()?,
            home: Netns::current().context("open the node's namespace")?,
        })
    }

    /// All that an IPv4 attachment takes, in as few sends as the plugin makes. The calling
    /// thread goes into the pod's namespace and comes back.
    pub(super) fn attach(&mut self, netns: &Path, number: u32) -> Result<IfIndex> {
        let pod_netns = Netns::open(netns).with_context(|| format!("open {}", netns.display()))?;
        setns(pod_netns.as_fd(), CloneFlags::CLONE_NEWNET).context("enter the pod")?;
        let pod = Socket::open();
        setns(self.home.as_fd(), CloneFlags::CLONE_NEWNET).context("leave the pod")?;
        let mut pod = pod?;
        let (host, peer) = ends(number);
        let pair = VethPair {
            host: host.clone(),
            peer: peer.clone(),
            peer_netns: pod_netns.as_fd(),
            mtu: 1500,
            group: 0,
        };
        self.host.link_add_veth(&pair)?;
        self.host.execute(&host_side(number, &host, &peer))?;
        pod.execute(&pod_side(number, &host, &peer))?;
        self.host.link_by_index(host.index)?;
        // Whether FORWARD drops.
        Firewall::open()?.ensure_forward_accept_for(&[Family::V4])?;
        Ok(host.index)
    }

    pub(super) fn delete(&mut self, index: IfIndex) -> Result<()> {
        Ok(self.host.link_delete(index)?)
    }

    /// Deletes many in about the time of one.
    pub(super) fn delete_all(&mut self, indexes: &[IfIndex]) -> Result<()> {
        Ok(self.host.remove_links(indexes)?)
    }
}

fn ends(number: u32) -> (VethEnd, VethEnd) {
    let [_, a, b, c] = number.to_be_bytes();
    let end = |name: String, index, mark| VethEnd {
        name,
        index: IfIndex(index),
        mac: MacAddr::local([mark, 0, 0, a, b, c]),
    };
    let index = FIRST + 2 * number;
    (
        end(format!("bench{number}"), index, 0x10),
        end("eth0".to_owned(), index + 1, 0x20),
    )
}

fn address(number: u32) -> IpNetwork {
    let [_, _, high, low] = number.to_be_bytes();
    IpNetwork::from(std::net::IpAddr::from([10, 84, high, low]))
}

fn host_side(number: u32, host: &VethEnd, peer: &VethEnd) -> Vec<Request<'static>> {
    let mut route = Route::to(address(number));
    route.oif = Some(host.index);
    route.scope = Scope::Link;
    vec![
        Request::link_set_up(host.index),
        Request::route_add(&route),
        Request::neighbour_replace(&Neighbour::permanent(
            host.index,
            address(number).ip(),
            peer.mac,
        )),
        Request::link_set_alias(host.index, "bench/pod"),
    ]
}

fn pod_side(number: u32, host: &VethEnd, peer: &VethEnd) -> Vec<Request<'static>> {
    let mut link = Route::to(IpNetwork::from(std::net::IpAddr::from(GATEWAY)));
    link.scope = Scope::Link;
    let mut default = Route::to("0.0.0.0/0".parse().expect("a network"));
    default.gateway = Some(GATEWAY.into());
    for route in [&mut link, &mut default] {
        route.oif = Some(peer.index);
        route.protocol = RouteProtocol::BOOT;
        route.prefsrc = Some(address(number).ip());
    }
    vec![
        Request::link_set_up(IfIndex(1)),
        Request::link_set_up(peer.index),
        Request::address_add(&Address::new(peer.index, address(number))),
        Request::route_add(&link),
        Request::route_add(&default),
        Request::neighbour_replace(&Neighbour::permanent(peer.index, GATEWAY.into(), host.mac)),
    ]
}
