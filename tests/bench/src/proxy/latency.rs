//! What the first packet of a connection takes among many Services and among few.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::Scale;
use super::contender::Contender;
use super::place::{self, Place};
use super::world::{self, Kind, NODE_IP, PORT, World};
use crate::report::{Compared, Row};
use crate::stats::{Bound, middle};

/// Services among which no search takes long.
const FEW: World = World {
    services: 10,
    endpoints: 10,
};
/// Of the way among few.
const MOST: f64 = 1.3;
const PATIENCE: Duration = Duration::from_mins(1);

/// Whom a client talks to.
#[derive(Clone, Copy, Debug)]
enum Target {
    ClusterIp,
    NodePort,
    /// Nobody answers, and the client is told.
    Refusal,
}

const TARGETS: [(Target, &str); 3] = [
    (Target::ClusterIp, "first packet, cluster IP"),
    (Target::NodePort, "first packet, NodePort"),
    (Target::Refusal, "refusal, no endpoints"),
];

/// Compares the rules that `ours` has left in `many` with those for a few Services.
pub(super) fn measure(ours: &Contender, many: &Place, scale: &Scale) -> Result<Vec<Row>> {
    abandon(ours, many)?;
    let few = Place::new(FEW)?;
    abandon(ours, &few)?;
    let mut rows = Vec::new();
    for (target, what) in TARGETS {
        let (mut at_many, mut at_few) = (Vec::new(), Vec::new());
        for pair in 0..scale.pairs {
            let mut both = [(many, &mut at_many), (&few, &mut at_few)];
            both.rotate_left(pair % 2);
            for (place, times) in both {
                times.push(block(place, target, pair, scale.connections)?);
            }
        }
        let peer = ("among 10", at_few.as_slice());
        let row = Row::pairs(what, "µs", &at_many, peer, Compared::Ratio)?;
        rows.push(row.bound(Bound::AtMost(MOST)));
    }
    Ok(rows)
}

/// Takes the endpoints of every tenth Service away, and waits until that is in the kernel.
fn abandon(ours: &Contender, place: &Place) -> Result<()> {
    place.world.abandon(&place.api);
    let running = ours.start(place)?;
    let abandoned = place.world.of(Kind::Abandoned);
    let deadline = Instant::now() + PATIENCE;
    for address in abandoned.iter().map(|nth| (world::cluster_ip(*nth), PORT)) {
        while !refused(place, address) {
            if Instant::now() > deadline {
                bail!("{}:{PORT} is not refused", address.0);
            }
        }
    }
    running.stop()
}

fn refused(place: &Place, address: (Ipv4Addr, u16)) -> bool {
    let asked = place.client.enter(|| place::ask(address, place::PATIENCE));
    asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// The median of some connections to Services at odd places, in µs.
fn block(place: &Place, target: Target, turn: usize, connections: usize) -> Result<f64> {
    let addresses = addresses(place.world, target);
    let times = place.client.enter(|| {
        let one = |nth: usize| {
            // A large prime leads everywhere in turn.
            let odd = (turn * connections + nth) * 7919 % addresses.len();
            time(addresses[odd], target)
        };
        (0..connections).map(one).collect::<Result<Vec<f64>>>()
    })?;
    middle(&times).context("no connection")
}

fn addresses(world: World, target: Target) -> Vec<(Ipv4Addr, u16)> {
    let cluster_ip = |place| (world::cluster_ip(place), PORT);
    match target {
        Target::ClusterIp => world.of(Kind::Plain).into_iter().map(cluster_ip).collect(),
        Target::Refusal => {
            let abandoned = world.of(Kind::Abandoned).into_iter();
            abandoned.map(cluster_ip).collect()
        }
        Target::NodePort => {
            let node: Ipv4Addr = NODE_IP.parse().expect("a constant address");
            let places = world.of(Kind::NodePort).into_iter();
            places
                .map(|place| (node, world::node_port(place)))
                .collect()
        }
    }
}

fn time(address: (Ipv4Addr, u16), target: Target) -> Result<f64> {
    let started = Instant::now();
    let took = match (place::ask(address, place::PATIENCE), target) {
        (Ok(answer), Target::ClusterIp | Target::NodePort) => answer.took,
        (Err(error), Target::Refusal) if error.kind() == ErrorKind::ConnectionRefused => {
            started.elapsed()
        }
        (other, _) => bail!("{}:{}: {other:?}", address.0, address.1),
    };
    Ok(took.as_secs_f64() * 1e6)
}
