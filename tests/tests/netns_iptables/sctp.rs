//! SCTP: rules for it need no module, and where there are sockets, clients are served.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Once;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect, listen,
    socket,
};
use seaway_proxy_core::desired::{DesiredState, Frontend, FrontendKind, LocalSources, Protocol};
use seaway_testbed::peer::PATIENCE;
use seaway_testbed::{Netns, uninterrupted};

use crate::node::{Node, VIP, config, each_flavour, web};

const NODE_PORT: &str = "192.168.60.1:30001";
const ENDPOINT: &str = "10.244.0.2:9090";

/// A socket that is used like one of TCP.
fn sctp() -> nix::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    socket(family, SockType::Stream, flags, Some(SockProtocol::Sctp))
}

fn listener(address: &str) -> io::Result<TcpListener> {
    let (socket, address) = (sctp()?, address.parse::<SocketAddrV4>().unwrap());
    bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
    listen(&socket, Backlog::new(8)?)?;
    Ok(socket.into())
}

/// Says something, and whom the server takes the client for.
fn ask(address: &str) -> io::Result<SocketAddr> {
    let (socket, address) = (sctp()?, address.parse::<SocketAddrV4>().unwrap());
    connect(socket.as_raw_fd(), &SockaddrIn::from(address))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"?")?;
    let mut room = [0; 100];
    let length = uninterrupted(|| stream.read(&mut room))?;
    let text = String::from_utf8_lossy(&room[..length]);
    text.parse().map_err(io::Error::other)
}

/// The Service with SCTP instead of TCP, and a NodePort.
fn desired() -> DesiredState {
    let mut desired = web(1);
    let pods = vec!["10.244.0.0/16".parse().unwrap()];
    desired.v4.local_sources = LocalSources::Networks(pods);
    for port in desired.v4.services.values_mut() {
        if port.frontends[0].protocol == Protocol::Udp {
            continue;
        }
        port.frontends[0].protocol = Protocol::Sctp;
        let cluster_ip = port.frontends[0];
        port.frontends.push(Frontend {
            addr: Ipv4Addr::UNSPECIFIED.into(),
            port: 30001,
            kind: FrontendKind::NodePort,
            ..cluster_ip
        });
        port.cluster[0].addr = ENDPOINT.parse().unwrap();
        port.serving = vec![port.cluster[0].addr];
    }
    desired
}

fn module() -> bool {
    Path::new("/sys/module/sctp").exists()
}

/// Once, and before anybody opens a socket, which loads it: whoever wants one asks here first.
pub(crate) fn rules_load_no_module() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        let loaded = module();
        each_flavour(|flavour| {
            Node::new(config(flavour)).sync(&desired());
            assert_eq!(module(), loaded, "rules have loaded a module");
        });
    });
}

/// Cases 5, 79 and 256. The machines of the VM suites have such sockets, if not before
/// somebody asks for one; this machine may have none.
#[test]
fn sctp_is_served_and_its_module_is_not_loaded_for_it() {
    rules_load_no_module();
    each_flavour(|flavour| {
        let mut n = Node::new(config(flavour));
        n.sync(&desired());
        let pod = &n.pods[0];
        let listener = match pod.enter(|| listener(ENDPOINT)) {
            Ok(listener) => listener,
            Err(error) => {
                eprintln!("no packet of SCTP: {error}");
                assert!(!Path::new("/seaway/tests").exists(), "not in a machine");
                return;
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    let (mut stream, from) = listener.accept().unwrap();
                    stream.read_exact(&mut [0]).unwrap();
                    stream.write_all(from.to_string().as_bytes()).unwrap();
                }
            });
            let ask = |from: &Netns, to| from.enter(|| ask(to)).unwrap().ip().to_string();
            assert_eq!(ask(&n.client, VIP), "10.244.9.2", "a pod is seen");
            assert_eq!(ask(&n.outside, NODE_PORT), "10.244.0.1", "masqueraded");
        });
    });
}
