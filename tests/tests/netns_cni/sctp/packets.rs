//! Associations of packets that are made by hand, for kernels that translate SCTP and have no
//! sockets for it (RFC 9260, sections 3 and 5.1).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::LOOK;

const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
/// A parameter of `INIT_ACK`.
const STATE_COOKIE: u16 = 7;
const COOKIE: &[u8] = b"cake";
/// All of a message in one chunk.
const WHOLE: u8 = 3;
/// Verification tags of clients and servers.
const TAGS: [u32; 2] = [0x0c11_e417, 0x5e4f_e400];

/// What was received, with its first chunk.
struct Packet {
    from: SocketAddr,
    source: u16,
    destination: u16,
    chunk: u8,
    rest: Vec<u8>,
}

/// One that is sent and received whole, from the header of SCTP on.
struct Raw(UdpSocket);

impl Raw {
    fn open(local: SocketAddr) -> io::Result<Self> {
        let family = if local.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket: OwnedFd = socket(family, SockType::Raw, flags, Some(SockProtocol::Sctp))?;
        let address = nix::sys::socket::SockaddrStorage::from(SocketAddr::new(local.ip(), 0));
        nix::sys::socket::bind(socket.as_raw_fd(), &address)?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(LOOK))?;
        Ok(Self(socket))
    }

    fn send(&self, to: SocketAddr, source: u16, tag: u32, chunks: &[Vec<u8>]) -> io::Result<()> {
        let mut packet = Vec::new();
        packet.extend(source.to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend(tag.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(chunks.concat());
        let sum = crc32c(&packet).to_le_bytes();
        packet[8..12].copy_from_slice(&sum);
        // A raw socket has no port.
        let sent = self.0.send_to(&packet, SocketAddr::new(to.ip(), 0))?;
        assert_eq!(sent, packet.len());
        Ok(())
    }

    /// `None`: nothing came for a moment.
    fn receive(&self) -> io::Result<Option<Packet>> {
        let mut room = [0; 1500];
        let (length, from) = match self.0.recv_from(&mut room) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        // Of IPv4 it gives the header, too.
        let header = if from.is_ipv4() {
            4 * usize::from(room[0] & 15)
        } else {
            0
        };
        let packet = &room[header..length];
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        assert_eq!(
            crc32c(&[&packet[..8], &[0; 4], &packet[12..]].concat()).to_le_bytes(),
            packet[8..12]
        );
        Ok(Some(Packet {
            from,
            source: port(0),
            destination: port(2),
            chunk: packet[12],
            rest: packet[16..].to_vec(),
        }))
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

fn chunk(kind: u8, flags: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut chunk = vec![kind, flags];
    chunk.extend(length.to_be_bytes());
    chunk.extend(value);
    chunk.resize(chunk.len().next_multiple_of(4), 0);
    chunk
}

/// INIT, and INIT ACK with its cookie: tag, window, one stream each way, first number.
fn init(kind: u8, tag: u32, cookie: &[u8]) -> Vec<u8> {
    let mut value = tag.to_be_bytes().to_vec();
    value.extend(65_536_u32.to_be_bytes());
    value.extend([0, 1, 0, 1]);
    value.extend(1_u32.to_be_bytes());
    if !cookie.is_empty() {
        value.extend(STATE_COOKIE.to_be_bytes());
        value.extend(u16::try_from(4 + cookie.len()).unwrap().to_be_bytes());
        value.extend(cookie);
    }
    chunk(kind, 0, &value)
}

/// Number, stream, number in it, protocol above; then the message.
fn data(text: &str) -> Vec<u8> {
    let mut value = 1_u32.to_be_bytes().to_vec();
    value.extend([0; 8]);
    value.extend(text.bytes());
    chunk(DATA, WHOLE, &value)
}

/// A server, which tells everybody its name, until `stop`.
pub(super) fn server(local: SocketAddr) -> io::Result<impl FnOnce(&str, &AtomicBool) + Send> {
    let raw = Raw::open(local)?;
    Ok(move |name: &str, stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            let Some(packet) = raw.receive().unwrap() else {
                continue;
            };
            if packet.destination != local.port() {
                continue;
            }
            let chunks = match packet.chunk {
                INIT => vec![init(INIT_ACK, TAGS[1], COOKIE)],
                COOKIE_ECHO => {
                    assert_eq!(packet.rest, COOKIE);
                    vec![chunk(COOKIE_ACK, 0, &[]), data(name)]
                }
                _ => continue,
            };
            let to = SocketAddr::new(packet.from.ip(), packet.source);
            // The client may be out of reach by now.
            raw.send(to, local.port(), TAGS[0], &chunks).ok();
        }
    })
}

/// The name of the server that an association with this address is one with.
pub(super) fn ask(own: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<String> {
    let raw = Raw::open(own)?;
    raw.send(to, own.port(), 0, &[init(INIT, TAGS[0], &[])])?;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        let Some(packet) = raw.receive()? else {
            continue;
        };
        if (packet.from.ip(), packet.source, packet.destination) != (to.ip(), to.port(), own.port())
        {
            continue;
        }
        match packet.chunk {
            INIT_ACK => raw.send(to, own.port(), TAGS[1], &[chunk(COOKIE_ECHO, 0, COOKIE)])?,
            COOKIE_ACK => {
                let [kind, _, high, low, value @ ..] = &packet.rest[..] else {
                    continue;
                };
                assert_eq!(*kind, DATA);
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                return String::from_utf8(value[12..length - 4].to_vec()).map_err(io::Error::other);
            }
            _ => {}
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
