//! The two ends of a test connection: a server that answers with its name, and who asks it.
//!
//! A TCP server greets with the line `NAME CLIENT-ADDRESS`, then echoes what it is sent, so
//! that a connection can be held open and proven alive. A UDP server answers each datagram
//! with that line. The program `seaway-peer` does the same from a process of its own, which
//! is what can join a cgroup.

mod dial;

use std::fmt;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::uninterrupted;

pub use dial::{Dialed, Dialer};

/// How long [`ask`] waits in tests: long beside a local round trip, short beside a test.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Room for one answer: a name and an address.
const ANSWER_BYTES: usize = 512;

/// How to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// A UDP socket that is connected first: `connect`, then `send`.
    Udp,
    /// A UDP socket that is not: `sendto`, and an answer is taken from anybody.
    UdpUnconnected,
}

impl std::str::FromStr for Protocol {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "tcp" => Ok(Self::Tcp),
            "udp" => Ok(Self::Udp),
            "udp-unconnected" => Ok(Self::UdpUnconnected),
            _ => Err(format!(
                "protocol {word:?}: expected tcp, udp or udp-unconnected"
            )),
        }
    }
}

/// What a server said, and whom the client takes it for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The server's name.
    pub name: String,
    /// The client's address as the server sees it.
    pub client: SocketAddr,
    /// The server's address as the client sees it: `getpeername` of a connected socket, the
    /// source address of the datagram otherwise.
    pub server: SocketAddr,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.client, self.server)
    }
}

/// Asks the server at `address` for its name.
///
/// # Errors
/// What the socket said; `TimedOut` when nobody answered in time; `InvalidData` when the
/// answer is not one of ours.
pub fn ask(protocol: Protocol, address: SocketAddr, patience: Duration) -> io::Result<Answer> {
    let asked = match protocol {
        Protocol::Tcp => Held::open(address, patience).map(|held| held.answer),
        Protocol::Udp => ask_udp(address, patience, true),
        Protocol::UdpUnconnected => ask_udp(address, patience, false),
    };
    asked.map_err(timed_out)
}

/// A TCP connection that stays open.
#[derive(Debug)]
pub struct Held {
    stream: BufReader<TcpStream>,
    /// How the server greeted.
    pub answer: Answer,
}

impl Held {
    /// Connects and reads the greeting.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let server = stream.peer_addr()?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        Ok(Self {
            stream,
            answer: parse_answer(&line, server)?,
        })
    }

    /// Sends a word and waits until it has come back.
    ///
    /// # Errors
    /// When the connection is broken, or does not answer in time.
    pub fn check(&mut self) -> io::Result<()> {
        const WORD: &[u8] = b"still there?";
        self.stream.get_mut().write_all(WORD)?;
        let mut echo = [0; WORD.len()];
        self.stream.read_exact(&mut echo).map_err(timed_out)?;
        if echo == WORD {
            Ok(())
        } else {
            Err(ErrorKind::InvalidData.into())
        }
    }
}

fn ask_udp(address: SocketAddr, patience: Duration, connected: bool) -> io::Result<Answer> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(patience))?;
    let mut room = [0; ANSWER_BYTES];
    let (length, server) = if connected {
        socket.connect(address)?;
        socket.send(b"who?")?;
        let length = uninterrupted(|| socket.recv(&mut room))?;
        (length, socket.peer_addr()?)
    } else {
        socket.send_to(b"who?", address)?;
        uninterrupted(|| socket.recv_from(&mut room))?
    };
    parse_answer(&String::from_utf8_lossy(&room[..length]), server)
}

fn parse_answer(line: &str, server: SocketAddr) -> io::Result<Answer> {
    let answer = line.trim_end().split_once(' ').and_then(|(name, client)| {
        Some(Answer {
            name: name.to_owned(),
            client: client.parse().ok()?,
            server,
        })
    });
    answer.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("not an answer: {line:?}")))
}

/// A socket's time limit shows as `WouldBlock`; say what it means.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock {
        ErrorKind::TimedOut.into()
    } else {
        error
    }
}

/// A running server. It ends, with its open connections, when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn start(protocol: Protocol, address: SocketAddr, name: &str) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let name = name.to_owned();
        let (address, thread) = if protocol == Protocol::Tcp {
            let listener = listen(address)?;
            // What could be read may have gone before it is.
            listener.set_nonblocking(true)?;
            let bound = listener.local_addr()?;
            (
                bound,
                std::thread::spawn(move || serve_tcp(&listener, &stopped, &name)),
            )
        } else {
            let socket = once_free(|| UdpSocket::bind(address))?;
            socket.set_nonblocking(true)?;
            let bound = socket.local_addr()?;
            (
                bound,
                std::thread::spawn(move || serve_udp(&socket, &stopped, &name)),
            )
        };
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens: tells the port when it was started with port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take(); // every poll of the server's threads sees this end closed
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            crate::sweep::complain("a test server panicked");
        }
    }
}

fn serve_tcp(listener: &TcpListener, stopped: &UnixStream, name: &str) {
    std::thread::scope(|scope| {
        while readable(listener.as_fd(), stopped) {
            if let Ok((stream, client)) = listener.accept() {
                // A client that goes away is its own business.
                scope.spawn(move || serve_connection(stream, client, stopped, name).ok());
            }
        }
    });
}

fn serve_connection(
    mut stream: TcpStream,
    client: SocketAddr,
    stopped: &UnixStream,
    name: &str,
) -> io::Result<()> {
    writeln!(stream, "{name} {client}")?;
    let mut room = [0; 4096];
    while readable(stream.as_fd(), stopped) {
        match stream.read(&mut room)? {
            0 => break,
            length => stream.write_all(&room[..length])?,
        }
    }
    Ok(())
}

fn serve_udp(socket: &UdpSocket, stopped: &UnixStream, name: &str) {
    let mut room = [0; ANSWER_BYTES];
    while readable(socket.as_fd(), stopped) {
        // An error is a former client's ICMP message; the next one may be there.
        if let Ok((_, client)) = socket.recv_from(&mut room) {
            socket
                .send_to(format!("{name} {client}\n").as_bytes(), client)
                .ok();
        }
    }
}

/// Waits for something to read; false when it is time to stop.
fn readable(socket: BorrowedFd<'_>, stopped: &UnixStream) -> bool {
    let mut fds = [
        PollFd::new(socket, PollFlags::POLLIN),
        PollFd::new(stopped.as_fd(), PollFlags::POLLIN),
    ];
    let polled = loop {
        // What an interruption leaves to read is nothing, and reading would wait for ever.
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            polled => break polled,
        }
    };
    polled.is_ok() && fds[1].revents().is_none_or(|events| events.is_empty())
}

/// Listens, also where a former server's socket has not gone yet: a process that another test
/// is just starting may still have a copy of it.
///
/// # Errors
/// The address is taken for five seconds, or cannot be had at all.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    once_free(|| TcpListener::bind(address))
}

#[expect(
    clippy::disallowed_methods,
    reason = "that an address is free again is told by nothing"
)]
fn once_free<T>(mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}
