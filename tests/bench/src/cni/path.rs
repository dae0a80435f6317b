//! Packets between two pods, of a node and of two: how many, and how fast.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use seaway_netlink::netns::in_namespace;
use seaway_testbed::Netns;

use super::Effort;
use super::nodes::{Nodes, Way};
use crate::plugin::{self, Peer, Peers, Plugin};
use crate::report::{Compared, Row};
use crate::site::Site;
use crate::stats::{Bound, exact, middle};

/// "No worse" within what cannot be told from noise.
const NO_WORSE: f64 = 0.05;
const CHUNK: usize = 128 * 1024;

/// Two pods of a node.
pub(super) fn on_a_node(effort: Effort, peers: Option<&Peers>) -> Result<Vec<Row>> {
    let Some(peers) = peers else {
        return Ok(Vec::new());
    };
    let ours = || Pair::on_one_node(|site| plugin::ours(false, site.dir()));
    let ptp = || Pair::on_one_node(|site| peers.plugin(Peer::Ptp, site.dir()));
    let what = ["stream on a node", "round trip on a node"];
    Ok(compare(effort, what, ours, ("ptp", ptp))?.into())
}

/// Pods of two nodes, whose ways the proxy makes, compared as `way` does.
pub(super) fn to_a_node(
    effort: Effort,
    proxy: Option<&Path>,
    way: fn(Effort, &Path) -> Result<[Row; 2]>,
) -> Result<Vec<Row>> {
    let Some(proxy) = proxy else {
        println!("Without --proxy nothing is measured between nodes.");
        return Ok(Vec::new());
    };
    Ok(way(effort, proxy)?.into())
}

const TO_A_NODE: [&str; 2] = ["stream to a node", "round trip to a node"];

/// By a route, beside one that is made by hand.
pub(super) fn direct(effort: Effort, proxy: &Path) -> Result<[Row; 2]> {
    let by_hand = || Pair::on_two_nodes(Way::Route);
    let peer = ("route, masquerade by hand", by_hand);
    compare(effort, TO_A_NODE, ours(proxy, "direct"), peer)
}

/// Beside a route and nothing else: conntrack, without which there is no masquerade, has its
/// price.
pub(super) fn bare(effort: Effort, proxy: &Path) -> Result<[Row; 2]> {
    let bare = || Pair::on_two_nodes(Way::Bare);
    let peer = ("route alone by hand", bare);
    let rows = compare(effort, TO_A_NODE, ours(proxy, "direct"), peer)?;
    Ok(rows.map(Row::unbound))
}

/// Over VXLAN, beside devices that are made by hand.
pub(super) fn vxlan(effort: Effort, proxy: &Path) -> Result<[Row; 2]> {
    let what = ["stream over VXLAN", "round trip over VXLAN"];
    let by_hand = || Pair::on_two_nodes(Way::Vxlan);
    let peer = ("VXLAN, masquerade by hand", by_hand);
    compare(effort, what, ours(proxy, "vxlan"), peer)
}

fn ours<'a>(proxy: &'a Path, routes: &'a str) -> impl Fn() -> Result<Pair> + 'a {
    move || Pair::on_two_nodes(Way::Proxy(proxy, &["--pod-routes", routes]))
}

fn compare(
    effort: Effort,
    [stream, trip]: [&'static str; 2],
    ours: impl Fn() -> Result<Pair>,
    (name, peer): (&'static str, impl Fn() -> Result<Pair>),
) -> Result<[Row; 2]> {
    let mut figures = [Figures::default(), Figures::default()];
    for pair in 0..effort.pairs {
        let mut both = [ours()?, peer()?];
        for turn in pair..pair + effort.connections {
            let mut in_turn = both.each_mut();
            in_turn.rotate_left(turn % 2);
            for one in in_turn {
                one.measure(effort.packets)?;
            }
        }
        for (figures, one) in figures.iter_mut().zip(&both) {
            figures.add(&one.figures)?;
        }
    }
    let [ours, peer] = figures;
    let row = |what, unit, ours: &[f64], peer: &[f64]| {
        Row::pairs(what, unit, ours, (name, peer), Compared::Ratio)
    };
    let stream = row(stream, "Gb/s", &ours.gigabits, &peer.gigabits)?;
    let trip = row(trip, "µs", &ours.trips, &peer.trips)?;
    Ok([
        stream.bound(Bound::AtLeast(1.0 - NO_WORSE)),
        trip.bound(Bound::AtMost(1.0 + NO_WORSE)),
    ])
}

/// What has been measured.
#[derive(Default)]
struct Figures {
    gigabits: Vec<f64>,
    trips: Vec<f64>,
}

impl Figures {
    /// The middle of these.
    fn add(&mut self, these: &Self) -> Result<()> {
        let [gigabits, trips] = [&these.gigabits, &these.trips].map(|all| middle(all));
        self.gigabits.push(gigabits.context("no stream")?);
        self.trips.push(trips.context("no round trip")?);
        Ok(())
    }
}

/// Two pods to be connected.
struct Pair {
    places: Places,
    /// Of the second.
    address: String,
    figures: Figures,
}

/// Where a pair is.
enum Places {
    OneNode(Site),
    TwoNodes(Nodes),
}

impl Places {
    fn pods(&self) -> [&Netns; 2] {
        match self {
            Self::OneNode(site) => [&site.pods[0], &site.pods[1]],
            Self::TwoNodes(nodes) => nodes.sites.each_ref().map(|site| &site.pods[0]),
        }
    }
}

impl Pair {
    fn on_one_node(plugin: impl FnOnce(&Site) -> Plugin) -> Result<Self> {
        let site = Site::new(2)?;
        let plugin = plugin(&site);
        let pods = site.attachments();
        let addresses = site.enter(|| {
            let added = pods.iter().map(|pod| plugin.add(pod));
            added.collect::<Result<Vec<String>>>()
        })?;
        let [_, second] = <[String; 2]>::try_from(addresses)
            .map_err(|all| anyhow::anyhow!("{} addresses of two pods", all.len()))?;
        Ok(Self::new(Places::OneNode(site), second))
    }

    fn on_two_nodes(way: Way<'_>) -> Result<Self> {
        let nodes = Nodes::new(way)?;
        let address = nodes.addresses[1].clone();
        Ok(Self::new(Places::TwoNodes(nodes), address))
    }

    fn new(places: Places, address: String) -> Self {
        Self {
            places,
            address,
            figures: Figures::default(),
        }
    }

    /// One connection.
    fn measure(&mut self, time: Duration) -> Result<()> {
        let [from, to] = self.places.pods();
        let (client, server) = connect(from, to, &self.address)?;
        self.figures.gigabits.push(stream(&client, &server, time)?);
        self.figures.trips.push(round_trip(&client, &server, time)?);
        Ok(())
    }
}

/// A socket belongs to the namespace where it was made, whoever uses it.
fn connect(from: &Netns, to: &Netns, address: &str) -> Result<(TcpStream, TcpStream)> {
    let listen = || TcpListener::bind((address, 0));
    let listener = in_namespace(to.fd().as_fd(), listen)??;
    let address: SocketAddr = listener.local_addr()?;
    let dial = || TcpStream::connect_timeout(&address, Duration::from_secs(5));
    let client = in_namespace(from.fd().as_fd(), dial)?.context("connect the pods")?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    }
    Ok((client, server))
}

/// Sends for so long, and tells the rate at the receiver's side until the last byte.
fn stream(mut client: &TcpStream, mut server: &TcpStream, time: Duration) -> Result<f64> {
    let started = Instant::now();
    let (sent, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || -> Result<(u64, Duration)> {
            pin(1)?;
            let mut room = vec![0; CHUNK];
            let mut bytes = 0;
            loop {
                let length = server.read(&mut room)?;
                bytes += u64::try_from(length)?;
                // The end is told by a byte of its own, since the connection stays open.
                if length == 0 || room[..length].contains(&1) {
                    return Ok((bytes, started.elapsed()));
                }
            }
        });
        let send = || -> Result<u64> {
            pin(0)?;
            let chunk = vec![0; CHUNK];
            let mut bytes = 0;
            while started.elapsed() < time {
                bytes += u64::try_from(client.write(&chunk)?)?;
            }
            client.write_all(&[1])?;
            Ok(bytes + 1)
        };
        let sent = scope.spawn(send).join().expect("the sender does not panic");
        (sent, receiver.join().expect("the receiver does not panic"))
    });
    let (bytes, elapsed) = received.context("receive")?;
    anyhow::ensure!(bytes == sent.context("send")?, "bytes were lost");
    Ok(exact(usize::try_from(bytes)?) * 8.0 / elapsed.as_secs_f64() / 1e9)
}

/// The median time in µs of a byte there and back. Both ends run on one CPU, so that no
/// wake-up of another counts.
fn round_trip(mut client: &TcpStream, mut server: &TcpStream, time: Duration) -> Result<f64> {
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || -> Result<()> {
            pin(0)?;
            let mut byte = [0];
            while byte != [1] {
                server.read_exact(&mut byte)?;
                server.write_all(&byte)?;
            }
            Ok(())
        });
        let asking = scope.spawn(move || -> Result<Vec<f64>> {
            pin(0)?;
            let (started, mut trips) = (Instant::now(), Vec::new());
            let mut byte = [0];
            while byte != [1] {
                byte = [u8::from(started.elapsed() >= time)];
                let asked = Instant::now();
                client.write_all(&byte)?;
                client.read_exact(&mut byte)?;
                trips.push(asked.elapsed().as_secs_f64() * 1e6);
            }
            Ok(trips)
        });
        let trips = asking.join().expect("the client does not panic")?;
        answering.join().expect("the server does not panic")?;
        middle(&trips).context("no round trip")
    })
}

/// Binds the calling thread to the n-th CPU that the process may use; to the last one where
/// there are fewer.
fn pin(n: usize) -> Result<()> {
    let process = i32::try_from(std::process::id())?;
    let allowed = sched_getaffinity(Pid::from_raw(process)).context("ask for the CPUs")?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu).unwrap_or(false);
    let cpu = (0..CpuSet::count()).filter(is_allowed).take(n + 1).last();
    let mut set = CpuSet::new();
    set.set(cpu.context("no CPU")?)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("bind a thread to a CPU")
}
