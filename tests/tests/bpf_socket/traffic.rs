//! What applications see.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect, sendto,
    socket,
};
use seaway_proxy_core::desired::Protocol::{Tcp, Udp};
use seaway_testbed::peer::Protocol as Ask;

use crate::desired::desired;
use crate::sandbox::{ask, counter, parse, sync};
use crate::sandboxed;

const VIP: &str = "10.96.0.10:80";
const MAPPED: &str = "[::ffff:10.96.0.10]:80";
const ENDPOINTS: [&str; 2] = ["10.244.1.2:8080", "10.244.1.3:8080"];

/// Enough for two endpoints: one of them is missed by chance once in 2^63 runs.
const TRIES: usize = 64;

fn names(protocol: Ask, address: &str, seen_as: &str) -> BTreeSet<String> {
    let asked = (0..TRIES).map(|_| {
        let answer = ask(protocol, address).unwrap();
        assert_eq!(
            answer.server.to_string(),
            seen_as,
            "the client sees what it dialled"
        );
        assert!(
            answer.client.ip().to_string().contains("10.244.1."),
            "{answer}"
        );
        answer.name
    });
    asked.collect()
}

fn both() -> BTreeSet<String> {
    ENDPOINTS.map(str::to_owned).into()
}

sandboxed! {
    fn tcp_is_spread_over_the_endpoints_and_shows_the_service(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        assert_eq!(names(Ask::Tcp, VIP, VIP), both());
        assert_eq!(counter(&backend, "connect_translated"), TRIES as u64);
        assert_eq!(counter(&backend, "getpeername_translated"), TRIES as u64);
    }
}

sandboxed! {
    fn udp_is_spread_over_the_endpoints_and_shows_the_service(sandbox) {
        let _servers = sandbox.serve(Ask::Udp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Udp, &ENDPOINTS)]));
        assert_eq!(names(Ask::Udp, VIP, VIP), both());
        assert_eq!(names(Ask::UdpUnconnected, VIP, VIP), both());
        assert_eq!(counter(&backend, "connect_translated"), TRIES as u64);
        assert_eq!(counter(&backend, "sendmsg_translated"), TRIES as u64);
        assert_eq!(counter(&backend, "recvmsg_translated"), TRIES as u64);
    }
}

sandboxed! {
    fn dual_stack_sockets_are_served_too(sandbox) {
        let _tcp = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let _udp = sandbox.serve(Ask::Udp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS), (VIP, Udp, &ENDPOINTS)]));
        assert_eq!(names(Ask::Tcp, MAPPED, MAPPED), both());
        assert_eq!(names(Ask::Udp, MAPPED, MAPPED), both());
        assert_eq!(names(Ask::UdpUnconnected, MAPPED, MAPPED), both());
    }
}

sandboxed! {
    fn an_unconnected_udp_socket_keeps_its_endpoint(sandbox) {
        let _servers = sandbox.serve(Ask::Udp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Udp, &ENDPOINTS)]));
        let socket = client();
        let answers: BTreeSet<_> = (0..TRIES).map(|_| exchange(&socket, VIP)).collect();
        assert_eq!(answers.len(), 1, "{answers:?}");
    }
}

sandboxed! {
    fn a_connected_udp_socket_hears_the_service_as_source(sandbox) {
        let _servers = sandbox.serve(Ask::Udp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Udp, &ENDPOINTS)]));
        let socket = client();
        socket.connect(VIP).unwrap();
        socket.send(b"who?").unwrap();
        let (_, source) = socket.recv_from(&mut [0; 64]).unwrap();
        assert_eq!((source, socket.peer_addr().unwrap()), (parse(VIP), parse(VIP)));
        // Now it means the pod itself.
        for endpoint in ENDPOINTS {
            socket.connect(endpoint).unwrap();
            assert_eq!(socket.peer_addr().unwrap(), parse(endpoint));
        }
    }
}

sandboxed! {
    fn without_endpoints_it_is_refused_at_once(sandbox) {
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &[]), (VIP, Udp, &[])]));
        for address in [VIP, MAPPED] {
            for protocol in [Ask::Tcp, Ask::Udp, Ask::UdpUnconnected] {
                let error = ask(protocol, address).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{protocol:?} {address}");
            }
        }
        assert_eq!(counter(&backend, "connect_no_endpoint"), 4);
        assert_eq!(counter(&backend, "sendmsg_no_endpoint"), 2);
    }
}

sandboxed! {
    fn an_accepted_socket_shows_its_client(sandbox) {
        let mut backend = sandbox.open();
        let [server, source] = ENDPOINTS;
        sync(&mut backend, &desired(&[(VIP, Tcp, &[server]), ("10.96.0.20:80", Tcp, &[source])]));
        // Some socket means the service by the address that the client comes from.
        let refused = ask(Ask::Tcp, "10.96.0.20:80").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "nobody listens yet");

        let listener = TcpListener::bind(server).unwrap();
        let client = tcp_from(SockaddrIn::new(10, 244, 1, 3, 8080));
        let (accepted, from) = listener.accept().unwrap();
        assert_eq!(from, parse(source));
        assert_eq!(accepted.peer_addr().unwrap(), parse(source));
        assert_eq!(accepted.local_addr().unwrap(), parse(server));
        assert_eq!(client.peer_addr().unwrap(), parse(VIP));
    }
}

/// A connection to the service from a given address.
fn tcp_from(source: SockaddrIn) -> TcpStream {
    let (inet, stream) = (AddressFamily::Inet, SockType::Stream);
    let client = socket(inet, stream, SockFlag::empty(), None).unwrap();
    bind(client.as_raw_fd(), &source).unwrap();
    connect(client.as_raw_fd(), &SockaddrIn::new(10, 96, 0, 10, 80)).unwrap();
    TcpStream::from(client)
}

sandboxed! {
    fn mptcp_and_tcp_fast_open_are_served_as_tcp(sandbox) {
        let _server = sandbox.serve(Ask::Tcp, &ENDPOINTS[..1]);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS[..1])]));
        let service = SockaddrIn::new(10, 96, 0, 10, 80);

        let mptcp = mptcp_socket();
        connect(mptcp.as_raw_fd(), &service).unwrap();
        // A known limit: the kernel connects a subflow, which is another socket than the
        // one that is asked, so the application sees the endpoint.
        assert_eq!(greeting(mptcp, ENDPOINTS[0]), ENDPOINTS[0]);

        let (inet, stream) = (AddressFamily::Inet, SockType::Stream);
        let tcp = socket(inet, stream, SockFlag::empty(), None).unwrap();
        let fast_open = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
        sendto(tcp.as_raw_fd(), b"hello", &service, fast_open).unwrap();
        assert_eq!(greeting(tcp, VIP), ENDPOINTS[0]);
        assert_eq!(counter(&backend, "connect_translated"), 2);
    }
}

/// Go uses such sockets where it is told to, and its servers always do.
#[allow(unsafe_code, reason = "nix does not know the protocol")]
fn mptcp_socket() -> OwnedFd {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call; the descriptor is new and nobody else's.
    unsafe {
        let fd = libc::socket(libc::AF_INET, kind, libc::IPPROTO_MPTCP);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// Name of the server at the other end, whom the client takes for `peer`.
fn greeting(client: OwnedFd, peer: &str) -> String {
    let client = TcpStream::from(client);
    client
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    assert_eq!(client.peer_addr().unwrap(), parse(peer));
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

sandboxed! {
    fn everything_else_is_left_alone(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let _udp = sandbox.serve(Ask::Udp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        for protocol in [Ask::Tcp, Ask::Udp, Ask::UdpUnconnected] {
            let answer = ask(protocol, ENDPOINTS[0]).unwrap();
            assert_eq!((answer.name.as_str(), answer.server), (ENDPOINTS[0], parse(ENDPOINTS[0])));
        }
        // Another port, another protocol, another address: nobody has a route there.
        for (protocol, address) in
            [(Ask::Tcp, "10.96.0.10:81"), (Ask::Udp, VIP), (Ask::Tcp, "10.96.0.11:80")]
        {
            assert_eq!(ask(protocol, address).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        }
        assert_eq!(counter(&backend, "connect_translated"), 0);
    }
}

sandboxed! {
    fn icmp_sockets_are_left_alone(sandbox) {
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        let mut backend = sandbox.open();
        // Port 0 of an ICMP socket must not be taken for a service's.
        sync(&mut backend, &desired(&[("10.96.0.10:0", Udp, &["10.244.1.2:0"])]));
        let (inet, datagram) = (AddressFamily::Inet, SockType::Datagram);
        let ping = socket(inet, datagram, SockFlag::empty(), SockProtocol::Icmp).unwrap();
        let error = connect(ping.as_raw_fd(), &SockaddrIn::new(10, 96, 0, 10, 0)).unwrap_err();
        assert_eq!(error, nix::errno::Errno::ENETUNREACH);
    }
}

fn client() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    socket
}

/// Name of who answers.
fn exchange(socket: &UdpSocket, address: &str) -> String {
    socket.send_to(b"who?", address).unwrap();
    let mut room = [0; 64];
    let (length, source) = socket.recv_from(&mut room).unwrap();
    assert_eq!(source, parse(address));
    let text = String::from_utf8_lossy(&room[..length]);
    text.split(' ').next().unwrap().to_owned()
}
