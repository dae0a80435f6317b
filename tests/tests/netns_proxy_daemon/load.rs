//! Two hundred new connections a second, and one that stays: what clients notice.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seaway_testbed::Netns;
use seaway_testbed::peer::{self, Held, Protocol};

/// All clients together, unless said otherwise.
const PER_SECOND: u32 = 200;
const CLIENTS: u32 = 4;
/// Whoever is not answered by then has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Clients of some addresses, until they are told to stop.
pub(crate) struct Load {
    shared: &'static Shared,
    clients: Vec<JoinHandle<()>>,
    held: Vec<Held>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// Begins; each client asks all of `addresses` in turn.
    #[track_caller]
    pub(crate) fn start(netns: &Netns, addresses: &[&str]) -> Self {
        Self::paced(netns, addresses, PER_SECOND)
    }

    /// The same with so many new connections a second, where the machine manages them.
    #[track_caller]
    pub(crate) fn paced(netns: &Netns, addresses: &[&str], per_second: u32) -> Self {
        let addresses: Vec<SocketAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        // Small, and the clients may outlive a test that fails.
        let shared: &'static Shared = Box::leak(Box::default());
        let open = |address: &SocketAddr| Held::open(*address, PATIENCE);
        let held = netns.enter(|| addresses.iter().map(open).collect::<Result<_, _>>());
        // A thread stays where it was made.
        let clients = netns.enter(|| {
            let client = |n| {
                let addresses = addresses.clone();
                std::thread::spawn(move || shared.ask(&addresses, n, per_second))
            };
            (0..CLIENTS).map(client).collect()
        });
        Self {
            shared,
            clients,
            held: held.unwrap(),
        }
    }

    /// How many were answered so far.
    pub(crate) fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// What has failed so far.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.shared.failures.lock().unwrap().clone()
    }

    /// Ends; nobody must have failed, and the connections that stayed must work.
    #[track_caller]
    pub(crate) fn end(mut self) -> u64 {
        for held in &mut self.held {
            held.check()
                .expect("a connection that was open all the time");
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        let failures = self.shared.failures.lock().unwrap();
        assert!(failures.is_empty(), "{failures:#?}");
        self.shared.answered.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn ask(&self, addresses: &[SocketAddr], client: u32, per_second: u32) {
        let every = Duration::from_secs(1) * CLIENTS / per_second;
        let started = Instant::now();
        let mut next = started + every * client / CLIENTS;
        for address in addresses.iter().cycle() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match peer::ask(Protocol::Tcp, *address, PATIENCE) {
                Ok(_) => self.answered.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    let at = started.elapsed();
                    let mut failures = self.failures.lock().unwrap();
                    failures.push(format!("{at:?} {address}: {error}"));
                    0
                }
            };
            next += every;
            // Who is late does not hurry.
            next = next.max(Instant::now());
            pause_until(next);
        }
    }
}

/// What has failed of all of these so far.
pub(crate) fn failures(loads: &[Load]) -> Vec<String> {
    loads.iter().flat_map(Load::failures).collect()
}

/// A time in which some loads go on.
pub(crate) struct Span {
    since: Instant,
    /// By then.
    answered: Vec<u64>,
}

impl Span {
    pub(crate) fn begin(loads: &[Load]) -> Self {
        Self {
            since: Instant::now(),
            answered: loads.iter().map(Load::answered).collect(),
        }
    }

    /// How many of each load were answered since.
    pub(crate) fn answered(&self, loads: &[Load]) -> Vec<u64> {
        let pairs = loads.iter().zip(&self.answered);
        pairs
            .map(|(load, before)| load.answered() - before)
            .collect()
    }

    /// The same for each second.
    pub(crate) fn per_second(&self, loads: &[Load]) -> Vec<u64> {
        let time = u64::try_from(self.since.elapsed().as_millis())
            .unwrap()
            .max(1);
        let answered = self.answered(loads).into_iter();
        answered.map(|count| count * 1000 / time).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a pace is a time")]
pub(crate) fn pause_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}
