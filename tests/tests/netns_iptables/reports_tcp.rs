//! What users of other service proxies have reported about connections of TCP: clients that use
//! a port again, packets that conntrack cannot place, replies by another way.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use seaway_proxy_core::desired::{DesiredState, Endpoint};
use seaway_testbed::peer::{Held, PATIENCE, Protocol};
use seaway_testbed::{Netns, uninterrupted, wait_until};

use crate::node::{Node, OUTSIDE, VIP, config, each_flavour};
use crate::reports::exposed;

/// After which a first packet that is lost is sent again.
const A_SECOND: Duration = Duration::from_secs(1);

/// A connection from a port of the caller's choice, and the server's greeting.
pub(crate) fn dial(port: u16, to: &str) -> io::Result<(TcpStream, String)> {
    let to: SocketAddrV4 = to.parse().unwrap();
    let flags = SockFlag::SOCK_CLOEXEC;
    let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    let patience = TimeVal::seconds(2);
    setsockopt(&fd, sockopt::SendTimeout, &patience)?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &patience)?;
    let own = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    bind(fd.as_raw_fd(), &SockaddrIn::from(own))?;
    let to = SockaddrIn::from(to);
    // One that a signal has interrupted goes on, and the next call waits for it.
    uninterrupted(|| connect(fd.as_raw_fd(), &to).map_err(io::Error::from))?;
    let stream = TcpStream::from(fd);
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    Ok((stream, line.trim_end().to_owned()))
}

/// Ends a connection with RST.
fn abort(stream: TcpStream) {
    let now = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &now).unwrap();
    drop(stream);
}

/// Proves a connection alive.
fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"still there?")?;
    stream.read_exact(&mut [0; 12])
}

/// One pod alone answers.
fn only(pod: usize) -> DesiredState {
    let mut desired = exposed(2, &[]);
    for port in desired.v4.services.values_mut() {
        let keep: Endpoint = port.cluster[pod];
        port.cluster = vec![keep];
    }
    desired
}

#[track_caller]
fn reaches(n: &Node, name: &str) -> TcpStream {
    let before = n.client.repeated_syns();
    // The client's own kernel gives the port out again when a second has passed.
    let dialed = wait_until(PATIENCE, "the port", || {
        let start = Instant::now();
        match n.client.enter(|| dial(40_000, VIP)) {
            Ok((stream, greeting)) => Ok(Ok((start.elapsed(), stream, greeting))),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    });
    let (took, stream, greeting) = dialed.unwrap();
    assert!(greeting.starts_with(name), "{greeting}");
    // One that meets what is left of an earlier connection is sent again within milliseconds.
    let repeated = n.client.repeated_syns() - before;
    assert!(repeated == 0 || took < A_SECOND, "{repeated}, {took:?}");
    stream
}

#[test]
fn u7_p10_p19_a_client_that_keeps_its_port_meets_who_is_there_now() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        // A port may be used again a second after FIN.
        n.client.sysctl("ipv4/tcp_tw_reuse", "1");
        n.sync(&only(0));
        let stream = reaches(&n, "pod0");
        // Who is connected stays so, whatever becomes of the choice.
        n.sync(&only(1));
        echo(&stream).expect("what is connected stays connected");
        abort(stream);
        abort(reaches(&n, "pod1"));
        // The old endpoint is gone without a word.
        let stream = reaches(&n, "pod1");
        n.host.ip("link set pod1 down");
        n.sync(&only(0));
        abort(stream);
        let stream = reaches(&n, "pod0");
        // A goodbye that both have heard.
        n.host.ip("link set pod1 up");
        drop(stream);
        n.sync(&only(1));
        reaches(&n, "pod1");
    });
}

/// A segment far outside of the window, as a pod may send it late; conntrack cannot place it,
/// so it is not translated, and whoever gets it answers with RST.
fn stray(pod: &Netns, from: SocketAddrV4, to: SocketAddrV4) {
    pod.enter(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw).unwrap();
        for seq in [0_u32, 1 << 30, 2 << 30, 3 << 30] {
            let packet = segment(from, to, seq);
            let to = SockaddrIn::from(to);
            sendto(fd.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
        }
    });
}

/// An acknowledgement with one byte of data, as IPv4 packet; the kernel fills in its checksum.
fn segment(from: SocketAddrV4, to: SocketAddrV4, seq: u32) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(from.port().to_be_bytes());
    tcp.extend(to.port().to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    tcp.extend(seq.to_be_bytes());
    // Five words of header, ACK, a window of 1024, no checksum yet, nothing urgent.
    tcp.extend([0x50, 0x10, 4, 0, 0, 0, 0, 0]);
    tcp.push(b'x');
    let length = u16::try_from(tcp.len()).unwrap();
    let mut pseudo: Vec<u8> = [from.ip().octets(), to.ip().octets()].concat();
    pseudo.extend([0, 6]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&tcp);
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut packet = vec![0x45, 0];
    packet.extend((length + 20).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(tcp);
    packet
}

/// The internet checksum.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// In each place where an untranslated reply may end: at the pod that is the client, at the
/// node as the client, and at the node that stands in for somebody outside.
#[test]
fn r1_a_segment_outside_of_the_window_resets_nothing() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&exposed(1, &[]));
        let node_port = "192.168.60.1:30001";
        for (client, address) in [(&n.client, VIP), (&n.host, VIP), (&n.outside, node_port)] {
            let address = address.parse().unwrap();
            let mut held = client.enter(|| Held::open(address, PATIENCE)).unwrap();
            held.check().unwrap();
            let before = n.client.resets() + n.host.resets() + n.outside.resets();
            let std::net::SocketAddr::V4(seen) = held.answer.client else {
                panic!("{:?}", held.answer);
            };
            stray(&n.pods[0], "10.244.0.2:8080".parse().unwrap(), seen);
            held.check().expect("the connection goes on");
            let after = n.client.resets() + n.host.resets() + n.outside.resets();
            assert_eq!(after, before, "{address} from {}", client.name());
        }
    });
}

/// Who is reached directly, and answers by another way, has nothing to do with Services.
#[test]
fn r2_a_connection_whose_replies_go_another_way_is_left_alone() {
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        for netns in [&n.host, &n.outside, &n.pods[0]] {
            netns.sysctl("ipv4/conf/all/rp_filter", "0");
            netns.sysctl("ipv4/conf/default/rp_filter", "0");
        }
        seaway_testbed::connect(
            &n.pods[0],
            "eth1",
            "192.168.70.2/24",
            &n.outside,
            "back",
            "192.168.70.1/24",
        );
        n.pods[0].sysctl("ipv4/conf/eth0/rp_filter", "0");
        n.outside.sysctl("ipv4/conf/back/rp_filter", "0");
        n.pods[0].ip(&format!("route add {OUTSIDE}/32 via 192.168.70.1"));
        n.sync(&exposed(2, &[]));
        assert_eq!(n.outside.ask_tcp("10.244.0.2:8080").unwrap(), "pod0");
        let answer = n.outside.ask(Protocol::Tcp, "192.168.60.1:30001").unwrap();
        assert!(answer.name.starts_with("pod"));
    });
}
