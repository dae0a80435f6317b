//! Whether pod addresses pass between this node and a peer without an overlay.
//!
//! A shared subnet does not prove it: clouds drop what is not from a node's own
//! address, and say nothing. So one asks. An echo as large as a pod's packets goes
//! from this node's reserved pod address to the peer's, over the direct path
//! whatever the routes to pods say; the peer's kernel answers it, also on a node
//! that is not ours.
//!
//! ```text
//!             3 answers in a row
//!   Overlay ───────────────────────► Direct
//!           ◄───────────────────────
//!             3 misses among the last 8, or another way to the peer
//! ```
//!
//! [`Probes`] decides and is pure: time is what the caller says. [`EchoSocket`]
//! sends and receives. It deliberately leaves out the way of the answers, which is
//! the peer's own decision, and why an echo was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

mod echo;
#[cfg(test)]
mod tests;

pub use echo::{Echo, EchoSocket, ProbeError};

/// How long an answer may take. Nodes of one cluster are milliseconds apart.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between the echoes of one attempt.
const SPACING: Duration = Duration::from_millis(100);
/// Between attempts to leave the overlay.
const RETRY: Duration = Duration::from_secs(30);
/// After the first attempt, doubled up to [`RETRY`]: a node that joins is in the API
/// before its own daemon has put the address there that answers.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// Attempts after which the pause is [`RETRY`].
const PATIENT: u8 = 4;
/// Between looks at a path that works.
const WATCH: Duration = Duration::from_secs(5);
/// Between looks while one of the last ones was missed: a path that is dead must be left soon.
/// From echo to echo, so that there is no pause after one whose answer was waited for.
const SUSPECT: Duration = Duration::from_secs(1);
/// Answers in a row that make a path direct.
const VERDICT: u8 = 3;
/// Misses among the last eight echoes that end it: a dead path has them in a row, one that
/// flaps has not.
const MISSES: u32 = 3;
/// What starts together is spread over this much time for each: 1,000 peers at once
/// are 200 attempts a second.
const STAGGER: Duration = Duration::from_millis(5);
/// Each pause is changed by up to this part of it, so that nodes do not march in step.
const JITTER_PART: u32 = 10;

/// A peer's pod address, and the way that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The reserved address of one of its podCIDRs: where echoes go.
    pub address: IpAddr,
    /// The node address that leads there without an overlay.
    pub via: IpAddr,
    /// Whether that way is in use already, by an earlier run that has proven it. It is
    /// asked at once all the same. Counts when the target is new.
    pub direct: bool,
}

/// Time since any fixed moment, such as the program's start.
pub(crate) type Now = Duration;

/// What is known about all peers, and when to ask again.
#[derive(Debug)]
pub struct Probes {
    seed: u64,
    peers: BTreeMap<IpAddr, Peer>,
    misses: u64,
}

#[derive(Debug)]
struct Peer {
    via: IpAddr,
    path: Path,
    /// Of the echo that was sent last.
    sequence: u16,
    /// When the echo on the way counts as lost; none is on the way otherwise.
    lost_at: Option<Now>,
    /// When to send the next one, if none is on the way.
    send_at: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// So many answers in this attempt, so many attempts in vain (at most [`PATIENT`]).
    Overlay { answers: u8, failed: u8 },
    /// What became of the last eight echoes, the last one in the lowest bit; 1 is a miss.
    Direct { missed: u8 },
}

impl Path {
    const NEW: Self = Self::Overlay {
        answers: 0,
        failed: 0,
    };
    const PROVEN: Self = Self::Direct { missed: 0 };
}

impl Probes {
    /// Knows nobody. `seed` tells this node from others: a number of its name, or address.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            peers: BTreeMap::new(),
            misses: 0,
        }
    }

    /// Follows exactly these. A new one, and one with another `via`, begins anew and is
    /// asked at once; tells whether verdicts changed by it.
    pub fn set_targets(&mut self, targets: &[Target], now: Now) -> bool {
        let wanted: BTreeMap<IpAddr, &Target> = targets.iter().map(|t| (t.address, t)).collect();
        let before = self.direct();
        self.peers
            .retain(|address, peer| wanted.get(address).is_some_and(|t| t.via == peer.via));
        let new: Vec<_> = wanted
            .into_iter()
            .filter(|(address, _)| !self.peers.contains_key(address))
            .collect();
        let window = stagger(new.len());
        for (address, target) in new {
            let send_at = now + self.spread(window, address, 0);
            self.peers.insert(
                address,
                Peer {
                    via: target.via,
                    path: if target.direct {
                        Path::PROVEN
                    } else {
                        Path::NEW
                    },
                    sequence: 0,
                    lost_at: None,
                    send_at,
                },
            );
        }
        self.direct() != before
    }

    /// Asks everybody again at once: this node's own side has changed. Verdicts stay
    /// until then.
    pub fn ask_again(&mut self, now: Now) {
        let window = stagger(self.peers.len());
        let seed = self.seed;
        for (&address, peer) in &mut self.peers {
            // An answer to what was sent before says nothing about the new side.
            peer.lost_at = None;
            peer.send_at = now + spread(seed, window, address, peer.sequence);
            if !peer.is_direct() {
                peer.path = Path::NEW;
            }
        }
    }

    /// Lets time pass: what is lost by now counts, what is due is to be sent. Tells
    /// the echoes to send, and whether a verdict changed.
    pub fn tick(&mut self, now: Now) -> (Vec<Due>, bool) {
        let (mut due, mut changed) = (Vec::new(), false);
        let seed = self.seed;
        for (&address, peer) in &mut self.peers {
            if peer.lost_at.is_some_and(|at| at <= now) {
                changed |= peer.missed(now, |pause, sequence| {
                    jitter(seed, pause, address, sequence)
                });
                self.misses += 1;
            }
            if peer.lost_at.is_none() && peer.send_at <= now {
                peer.sequence = peer.sequence.wrapping_add(1);
                peer.lost_at = Some(now + PATIENCE);
                due.push(Due {
                    address,
                    sequence: peer.sequence,
                });
            }
        }
        (due, changed)
    }

    /// An answer has come; tells whether a verdict changed. One that was not waited
    /// for, or no more, is none.
    pub fn answered(&mut self, from: IpAddr, sequence: u16, now: Now) -> bool {
        let seed = self.seed;
        let Some(peer) = self.peers.get_mut(&from) else {
            return false;
        };
        if peer.sequence != sequence || peer.lost_at.is_none_or(|at| at <= now) {
            return false;
        }
        peer.answered(now, |pause, sequence| jitter(seed, pause, from, sequence))
    }

    /// The echo could not even be sent; tells whether a verdict changed.
    pub fn not_sent(&mut self, due: Due, now: Now) -> bool {
        let seed = self.seed;
        let Some(peer) = self.peers.get_mut(&due.address) else {
            return false;
        };
        if peer.sequence != due.sequence || peer.lost_at.is_none() {
            return false;
        }
        self.misses += 1;
        peer.missed(now, |pause, sequence| {
            jitter(seed, pause, due.address, sequence)
        })
    }

    /// When [`tick`](Self::tick) has something to do; never, while nobody is known.
    pub fn next(&self) -> Option<Now> {
        self.peers
            .values()
            .map(|p| p.lost_at.unwrap_or(p.send_at))
            .min()
    }

    /// The addresses that are reached directly.
    pub fn direct(&self) -> BTreeSet<IpAddr> {
        let direct = self.peers.iter().filter(|(_, peer)| peer.is_direct());
        direct.map(|(address, _)| *address).collect()
    }

    /// Echoes without an answer, since the beginning.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    fn spread(&self, window: Duration, address: IpAddr, sequence: u16) -> Duration {
        spread(self.seed, window, address, sequence)
    }
}

/// An echo to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Where.
    pub address: IpAddr,
    /// Under which number.
    pub sequence: u16,
}

impl Peer {
    fn is_direct(&self) -> bool {
        matches!(self.path, Path::Direct { .. })
    }

    fn answered(&mut self, now: Now, jitter: impl Fn(Duration, u16) -> Duration) -> bool {
        let (path, pause) = match self.path {
            Path::Overlay { answers, failed } if answers + 1 < VERDICT => {
                let answers = answers + 1;
                (Path::Overlay { answers, failed }, SPACING)
            }
            Path::Overlay { .. } => (Path::PROVEN, WATCH),
            Path::Direct { missed } => {
                let missed = missed << 1;
                let pause = if missed == 0 { WATCH } else { SUSPECT };
                (Path::Direct { missed }, pause)
            }
        };
        self.becomes(path, now + jitter(pause, self.sequence))
    }

    fn missed(&mut self, now: Now, jitter: impl Fn(Duration, u16) -> Duration) -> bool {
        let in_vain = |failed| Path::Overlay { answers: 0, failed };
        let (path, pause) = match self.path {
            Path::Direct { missed } if (missed << 1).count_ones() + 1 < MISSES => {
                let missed = missed << 1 | 1;
                // One that could not be sent was not waited for.
                let waited = self.lost_at.is_some_and(|at| at <= now);
                let pause = if waited { Duration::ZERO } else { SUSPECT };
                (Path::Direct { missed }, pause)
            }
            Path::Overlay { failed, .. } if failed < PATIENT => {
                (in_vain(failed + 1), FIRST_RETRY * (1 << failed))
            }
            // What has just failed is not tried soon either.
            Path::Overlay { .. } | Path::Direct { .. } => (in_vain(PATIENT), RETRY),
        };
        self.becomes(path, now + jitter(pause, self.sequence))
    }

    fn becomes(&mut self, path: Path, send_at: Now) -> bool {
        let was = self.is_direct();
        (self.path, self.send_at, self.lost_at) = (path, send_at, None);
        self.is_direct() != was
    }
}

fn stagger(count: usize) -> Duration {
    // One alone is asked at once.
    STAGGER * u32::try_from(count.saturating_sub(1)).unwrap_or(u32::MAX)
}

/// `pause`, a little longer or shorter.
fn jitter(seed: u64, pause: Duration, address: IpAddr, sequence: u16) -> Duration {
    let part = pause / JITTER_PART;
    pause.saturating_sub(part) + spread(seed, part * 2, address, sequence)
}

/// A moment within `window` that is the same for the same arguments, and looks random.
fn spread(seed: u64, window: Duration, address: IpAddr, sequence: u16) -> Duration {
    let mut hasher = DefaultHasher::new();
    (seed, address, sequence).hash(&mut hasher);
    // Sixteen bits are plenty of places, and keep the product far from overflow.
    let place = u32::from(u16::try_from(hasher.finish() & 0xffff).unwrap_or(0));
    window / 0x1_0000 * place
}
