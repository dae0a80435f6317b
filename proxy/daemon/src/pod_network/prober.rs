//! Asks the other nodes whether pod addresses pass directly.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use seaway_podnet::{EchoSocket, Family, IfIndex, PROBE_MARK, Paths, Probe, Probes, Target};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::registered;
use crate::chain::Chain;
use crate::metrics::Metrics;

/// What is due within this time is sent together: a thousand peers must not wake
/// the node a thousand times.
const TOGETHER: Duration = Duration::from_millis(10);

/// What is to be found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probing {
    /// Whom to ask.
    pub(crate) probes: Vec<Probe>,
    /// Bytes of each packet: as large as pods' packets can be.
    pub(crate) size: u32,
    /// By which link the answer holds.
    pub(crate) uplink: Option<IfIndex>,
    /// Paths that an earlier run has proven, and that are in use.
    pub(crate) in_use: Paths,
}

/// The task that asks.
#[derive(Debug)]
pub(crate) struct Prober {
    probing: watch::Receiver<Probing>,
    proven: watch::Sender<Option<Paths>>,
    metrics: Metrics,
    stop: CancellationToken,
    /// The clock's zero.
    start: Instant,
    probes: Probes,
    known: Probing,
    v4: Line,
    v6: Line,
    counted: u64,
    asked_at: Option<Instant>,
}

/// The socket of one family.
#[derive(Debug, Default)]
struct Line {
    socket: Option<AsyncFd<EchoSocket>>,
    /// Whether the present trouble has been told.
    told: bool,
}

impl Prober {
    pub(crate) fn new(
        node_name: &str,
        probing: watch::Receiver<Probing>,
        proven: watch::Sender<Option<Paths>>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        // Nodes that start together shall not ask the same peer together.
        let mut hasher = DefaultHasher::new();
        node_name.hash(&mut hasher);
        Self {
            probing,
            proven,
            metrics,
            stop,
            start: Instant::now(),
            probes: Probes::new(hasher.finish()),
            known: Probing::default(),
            v4: Line::default(),
            v6: Line::default(),
            counted: 0,
            asked_at: None,
        }
    }

    /// Runs until stopped.
    pub(crate) async fn run(mut self) -> Result<(), Infallible> {
        let stop = self.stop.clone();
        loop {
            let due = self.due();
            let changed = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                Ok(()) = self.probing.changed() => self.replan(),
                ready = self.v4.ready() => self.hear(ready, Family::V4),
                ready = self.v6.ready() => self.hear(ready, Family::V6),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.ask(),
            };
            let misses = self.probes.misses();
            self.metrics
                .pod_network
                .probe_failures
                .inc_by(misses - self.counted);
            self.counted = misses;
            if changed {
                self.tell();
            }
        }
    }

    /// When to ask next.
    fn due(&self) -> Option<Instant> {
        let next = self.start + self.probes.next()?;
        Some(self.asked_at.map_or(next, |at| next.max(at + TOGETHER)))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn replan(&mut self) -> bool {
        let plan = self.probing.borrow_and_update().clone();
        let now = self.now();
        let targets: Vec<Target> = plan
            .probes
            .iter()
            .map(|probe| Target {
                address: probe.target,
                via: probe.via,
                direct: plan.in_use.is_direct(&probe.node, probe.family),
            })
            .collect();
        let changed = self.probes.set_targets(&targets, now);
        let sources = |plan: &Probing| [Family::V4, Family::V6].map(|of| plan.source(of));
        if (plan.size, plan.uplink, sources(&plan))
            != (self.known.size, self.known.uplink, sources(&self.known))
        {
            self.probes.ask_again(now);
        }
        self.known = plan;
        changed
    }

    /// Sends what is due.
    fn ask(&mut self) -> bool {
        let now = self.now();
        self.asked_at = Some(Instant::now());
        let (due, mut changed) = self.probes.tick(now);
        for echo in due {
            let family = Family::of(echo.address);
            let source = self.known.source(family);
            let size = self.known.size;
            let line = self.line(family);
            let sent = source.is_some_and(|source| line.send(source, echo, size));
            if !sent {
                changed |= self.probes.not_sent(echo, now);
            }
        }
        changed
    }

    /// Takes the answers that have come.
    fn hear(&mut self, ready: io::Result<()>, family: Family) -> bool {
        let now = self.now();
        let line = self.line(family);
        let mut changed = false;
        let echoes = match ready {
            Ok(()) => line.receive(),
            Err(error) => {
                line.broken(&error);
                Vec::new()
            }
        };
        for (from, sequence) in echoes {
            changed |= self.probes.answered(from, sequence, now);
        }
        changed
    }

    fn line(&mut self, family: Family) -> &mut Line {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Passes on which paths are proven.
    fn tell(&self) {
        let direct = self.probes.direct();
        let whose: BTreeMap<IpAddr, (String, Family)> = self
            .known
            .probes
            .iter()
            .map(|probe| (probe.target, (probe.node.clone(), probe.family)))
            .collect();
        let proven: Paths = direct
            .iter()
            .filter_map(|a| whose.get(a).cloned())
            .collect();
        debug!(count = direct.len(), "Direct paths have changed");
        self.proven.send_replace(Some(proven));
    }
}

impl Probing {
    /// The address that this node asks from.
    fn source(&self, family: Family) -> Option<IpAddr> {
        let probe = self.probes.iter().find(|probe| probe.family == family);
        probe.map(|probe| probe.source)
    }
}

impl Line {
    /// Returns when an answer may be there; never without a socket. Readiness stays.
    async fn ready(&self) -> io::Result<()> {
        match &self.socket {
            Some(socket) => socket
                .readable()
                .await
                .map(|mut guard| guard.retain_ready()),
            None => pending().await,
        }
    }

    fn receive(&mut self) -> Vec<(IpAddr, u16)> {
        let mut echoes = Vec::new();
        let mut failure = None;
        if let Some(socket) = &self.socket {
            loop {
                let received = socket.try_io(tokio::io::Interest::READABLE, |socket| {
                    let echo = socket.receive().map_err(io::Error::other)?;
                    echo.ok_or_else(|| io::ErrorKind::WouldBlock.into())
                });
                match received {
                    Ok(echo) => echoes.push((echo.from, echo.sequence)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
        }
        if let Some(error) = failure {
            self.broken(&error);
        }
        echoes
    }

    /// Tells whether it could be sent.
    fn send(&mut self, source: IpAddr, echo: seaway_podnet::Due, size: u32) -> bool {
        let open = self.socket.as_ref().map(|socket| socket.get_ref().source());
        if open != Some(source) {
            // Many daemons in turn, never two at a time; replies to others' are not waited for.
            let identifier = u16::try_from(std::process::id() & 0xffff).unwrap_or_default();
            let opened = EchoSocket::open(source, PROBE_MARK, identifier);
            match opened.map_err(io::Error::other).and_then(registered) {
                Ok(socket) => (self.socket, self.told) = (Some(socket), false),
                Err(error) => self.broken(&error),
            }
        }
        let Some(socket) = &self.socket else {
            return false;
        };
        let sent = socket.get_ref().send(echo.address, echo.sequence, size);
        // One peer's trouble, and its path is judged by it.
        sent.inspect_err(|error| debug!(error = %Chain(error), "Cannot send a probe"))
            .is_ok()
    }

    fn broken(&mut self, error: &io::Error) {
        self.socket = None;
        if !self.told {
            warn!(error = %Chain(error), "Cannot probe direct paths, using the overlay");
            self.told = true;
        }
    }
}
