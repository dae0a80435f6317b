//! Packets of tests, beyond question and answer.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seaway_testbed::{Netns, peer};

/// Sends a datagram that makes an IP packet of `length` bytes, and waits for an answer.
pub(crate) fn datagram(from: &Netns, to: &str, length: u32) -> std::io::Result<()> {
    let headers = if to.starts_with('[') { 40 + 8 } else { 20 + 8 };
    let payload = vec![0x5a; usize::try_from(length - headers).unwrap()];
    let socket = client(from, to);
    socket.send(&payload)?;
    socket.recv(&mut [0; 512]).map(drop)
}

fn client(from: &Netns, to: &str) -> UdpSocket {
    let any = if to.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    from.enter(|| {
        let socket = UdpSocket::bind(any).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket.connect(to).unwrap();
        socket
    })
}

/// Packets that were sent in pieces from inside, both families.
pub(crate) fn fragmented(netns: &Netns) -> u64 {
    let v4 = netns.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = v4.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, v4) = pairs.find(|(name, _)| *name == "FragCreates").unwrap();
    let v6 = netns.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap());
    let v6 = v6.lines().find(|line| line.starts_with("Ip6FragCreates"));
    let v6 = v6
        .and_then(|line| line.split_whitespace().nth(1))
        .unwrap_or("0");
    v4.parse::<u64>().unwrap() + v6.parse::<u64>().unwrap()
}

/// How long an answer may take before it counts as lost: an emulated machine stands still for
/// more than a second now and then.
const LATE: Duration = Duration::from_secs(10);

/// Asks again and again, one question after the other, and counts.
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Counted>,
}

/// What became of the questions of a [`Stream`].
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) asked: u32,
    pub(crate) answered: u32,
    /// What the socket said, but for answers that took a while.
    pub(crate) errors: Vec<std::io::Error>,
}

impl Counted {
    fn ask(&mut self, socket: &UdpSocket) {
        self.asked += 1;
        match socket.send(b"who?") {
            Ok(_) => self.hear(socket),
            Err(error) => self.errors.push(error),
        }
    }

    /// An answer that is late is the next one's: their number tells.
    fn hear(&mut self, socket: &UdpSocket) {
        match socket.recv(&mut [0; 512]) {
            Ok(_) => self.answered += 1,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => self.errors.push(error),
        }
    }
}

impl Stream {
    pub(crate) fn start(from: &Netns, to: &str) -> Self {
        let socket = client(from, to);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut counted = Counted::default();
            while !stopped.load(Ordering::Relaxed) {
                counted.ask(&socket);
            }
            let end = Instant::now() + LATE;
            while counted.answered < counted.asked && Instant::now() < end {
                counted.hear(&socket);
            }
            counted
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Counted {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Serves `bytes` to the first who connects.
pub(crate) fn serve_bytes(netns: &Netns, address: &str, bytes: usize) -> JoinHandle<()> {
    let address = address.parse().unwrap();
    let listener = netns.enter(|| peer::listen(address).unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let block = vec![0x5a; 64 * 1024];
        let mut left = bytes;
        while left > 0 {
            let some = left.min(block.len());
            stream.write_all(&block[..some]).unwrap();
            left -= some;
        }
    })
}

/// Takes all that comes; returns how much, how long it took from the call on, and the
/// segment size that TCP has found.
pub(crate) fn take_bytes(netns: &Netns, address: &str) -> (usize, Duration, u32) {
    let before = Instant::now();
    let to = address.parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
    let mut stream = netns.enter(connect);
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mss = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::TcpMaxSeg).unwrap();
    let (mut total, mut block) = (0, vec![0; 256 * 1024]);
    loop {
        match stream.read(&mut block).unwrap() {
            0 => return (total, before.elapsed(), mss),
            some => total += some,
        }
    }
}
