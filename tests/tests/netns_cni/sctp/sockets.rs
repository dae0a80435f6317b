//! Associations of the kernel's sockets, which are used like those of TCP.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    listen, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::LOOK;

/// Fails where the kernel has none.
pub(super) fn open(local: SocketAddr) -> nix::Result<OwnedFd> {
    let family = if local.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, Some(SockProtocol::Sctp))?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
    Ok(socket)
}

fn time(time: Duration) -> TimeVal {
    TimeVal::milliseconds(time.as_millis().try_into().unwrap())
}

/// A server, which tells everybody its name, until `stop`.
pub(super) fn server(local: SocketAddr) -> io::Result<impl FnOnce(&str, &AtomicBool) + Send> {
    let socket = open(local)?;
    listen(&socket, Backlog::new(8)?)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &time(LOOK))?;
    let listener = TcpListener::from(socket);
    Ok(move |name: &str, stop: &AtomicBool| {
        // An association that is closed is not what a pod leaves that is gone.
        let mut held = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            if let Ok((mut stream, _)) = listener.accept() {
                stream.write_all(name.as_bytes()).unwrap();
                held.push(stream);
            }
        }
    })
}

/// The name of the server that an association with this address is one with.
pub(super) fn ask(own: SocketAddr, to: SocketAddr, patience: Duration) -> io::Result<String> {
    let socket = open(own)?;
    setsockopt(&socket, sockopt::SendTimeout, &time(patience))?;
    // Closed at once, so that the port is free for the next one.
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&socket, sockopt::Linger, &linger)?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience))?;
    let mut room = [0; 100];
    let length = stream.read(&mut room)?;
    String::from_utf8(room[..length].to_vec()).map_err(io::Error::other)
}
