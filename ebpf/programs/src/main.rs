//! Services at the socket level.
//!
//! An application that connects or sends to a virtual address talks to one of the
//! endpoints from the first packet on; when it asks who it talks to, it hears the
//! virtual address. Nothing here touches packets.
//!
//! | hook | what happens |
//! |---|---|
//! | connect4/6 | TCP, MPTCP, UDP: destination → endpoint, or ECONNREFUSED |
//! | sendmsg4/6 | datagrams with a destination: the same |
//! | recvmsg4/6 | source of a datagram: endpoint → virtual address |
//! | getpeername4/6 | peer: endpoint → virtual address |
//!
//! MPTCP connects by a subflow, a socket of its own, which nothing here can tell from
//! the socket that getpeername is asked of: it shows the endpoint there.
//!
//! The IPv6 hooks serve IPv4 traffic of dual-stack sockets (`::ffff:a.b.c.d`) only.
//! A v4-mapped socket mixes hooks: its `sendto` runs sendmsg4, its `recvfrom` runs
//! recvmsg6, so both families share all maps.
//!
//! The verifier (6.18) accepts only 1 from recvmsg and getpeername, so these
//! functions end in a constant.
#![no_std]
#![no_main]

mod connect;
mod context;
mod counters;
mod getpeername;
mod maps;
mod recvmsg;
mod reverse;
mod sendmsg;
mod service;

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;
use context::{V4, V4Mapped};

/// Lets the system call go on.
const PROCEED: i32 = 1;
/// Fails the system call with EPERM or what `bpf_set_retval` said.
const REJECT: i32 = 0;

/// IPv4 `connect`.
#[cgroup_sock_addr(connect4)]
fn connect4(ctx: SockAddrContext) -> i32 {
    connect::run::<V4>(&ctx)
}

/// `connect` of a dual-stack socket.
#[cgroup_sock_addr(connect6)]
fn connect6(ctx: SockAddrContext) -> i32 {
    connect::run::<V4Mapped>(&ctx)
}

/// IPv4 `sendto`, and that of a dual-stack socket to a v4-mapped address.
#[cgroup_sock_addr(sendmsg4)]
fn sendmsg4(ctx: SockAddrContext) -> i32 {
    sendmsg::run::<V4>(&ctx)
}

/// `sendto` of a dual-stack socket.
#[cgroup_sock_addr(sendmsg6)]
fn sendmsg6(ctx: SockAddrContext) -> i32 {
    sendmsg::run::<V4Mapped>(&ctx)
}

/// IPv4 `recvfrom`.
#[cgroup_sock_addr(recvmsg4)]
fn recvmsg4(ctx: SockAddrContext) -> i32 {
    recvmsg::run::<V4>(&ctx);
    PROCEED
}

/// `recvfrom` of a dual-stack socket.
#[cgroup_sock_addr(recvmsg6)]
fn recvmsg6(ctx: SockAddrContext) -> i32 {
    recvmsg::run::<V4Mapped>(&ctx);
    PROCEED
}

/// IPv4 `getpeername`, and `accept` with an address argument.
#[cgroup_sock_addr(getpeername4)]
fn getpeername4(ctx: SockAddrContext) -> i32 {
    getpeername::run::<V4>(&ctx);
    PROCEED
}

/// `getpeername` and `accept` of a dual-stack socket.
#[cgroup_sock_addr(getpeername6)]
fn getpeername6(ctx: SockAddrContext) -> i32 {
    getpeername::run::<V4Mapped>(&ctx);
    PROCEED
}

/// None of the helpers in use is reserved for GPL programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 11] = *b"Apache-2.0\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that can come here.
    loop {}
}
