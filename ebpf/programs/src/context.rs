//! Reading and writing the address that a hook is called with.

use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::{bpf_get_socket_cookie, bpf_set_retval};
use aya_ebpf::programs::SockAddrContext;
use seaway_ebpf_abi::{Be16, Be32, PROTO_MPTCP, PROTO_TCP, PROTO_UDP};

/// An IPv4 address and port, as in the context.
#[derive(Clone, Copy)]
pub(crate) struct Addr {
    pub(crate) ip: Be32,
    pub(crate) port: Be16,
}

/// Where an IPv4 address lies in the context.
pub(crate) trait Family {
    /// The address; none when it is not IPv4.
    fn ip(ctx: &SockAddrContext) -> Option<Be32>;
    /// Writes the address.
    fn set_ip(ctx: &SockAddrContext, ip: Be32);
}

/// Hooks of AF_INET.
pub(crate) struct V4;

impl Family for V4 {
    #[inline(always)]
    fn ip(ctx: &SockAddrContext) -> Option<Be32> {
        // SAFETY: the kernel passes a valid context; volatile keeps the access four
        // bytes wide, which is what the verifier allows.
        Some(Be32::from_network(unsafe {
            addr_of!((*ctx.sock_addr).user_ip4).read_volatile()
        }))
    }

    #[inline(always)]
    fn set_ip(ctx: &SockAddrContext, ip: Be32) {
        // SAFETY: as above.
        unsafe { addr_of_mut!((*ctx.sock_addr).user_ip4).write_volatile(ip.network()) }
    }
}

/// Hooks of AF_INET6, for addresses in `::ffff:0:0/96`.
pub(crate) struct V4Mapped;

impl V4Mapped {
    #[inline(always)]
    fn word<const N: usize>(ctx: &SockAddrContext) -> u32 {
        // SAFETY: the kernel passes a valid context and N is below 4.
        unsafe { addr_of!((*ctx.sock_addr).user_ip6[N]).read_volatile() }
    }
}

impl Family for V4Mapped {
    #[inline(always)]
    fn ip(ctx: &SockAddrContext) -> Option<Be32> {
        let mapped = Self::word::<0>(ctx) == 0
            && Self::word::<1>(ctx) == 0
            && Self::word::<2>(ctx) == 0xffff_u32.to_be();
        mapped.then(|| Be32::from_network(Self::word::<3>(ctx)))
    }

    #[inline(always)]
    fn set_ip(ctx: &SockAddrContext, ip: Be32) {
        // SAFETY: as in `word`.
        unsafe { addr_of_mut!((*ctx.sock_addr).user_ip6[3]).write_volatile(ip.network()) }
    }
}

/// The address that the hook is called with; none when it is not IPv4.
#[inline(always)]
pub(crate) fn addr<F: Family>(ctx: &SockAddrContext) -> Option<Addr> {
    let ip = F::ip(ctx)?;
    // SAFETY: the kernel passes a valid context.
    let port = unsafe { addr_of!((*ctx.sock_addr).user_port).read_volatile() };
    // The field holds 16 bits in network byte order in its first two bytes.
    Some(Addr {
        ip,
        port: Be16::from_network(port as u16),
    })
}

/// Replaces the address that the hook is called with.
#[inline(always)]
pub(crate) fn set_addr<F: Family>(ctx: &SockAddrContext, addr: Addr) {
    F::set_ip(ctx, addr.ip);
    // SAFETY: the kernel passes a valid context.
    unsafe {
        addr_of_mut!((*ctx.sock_addr).user_port).write_volatile(u32::from(addr.port.network()));
    }
}

/// The socket's protocol, when services have it. Others, above all ICMP sockets,
/// whose port is 0, are left alone.
#[inline(always)]
pub(crate) fn protocol(ctx: &SockAddrContext) -> Option<u8> {
    const TCP: u32 = PROTO_TCP as u32;
    const UDP: u32 = PROTO_UDP as u32;
    // SAFETY: the kernel passes a valid context.
    match unsafe { addr_of!((*ctx.sock_addr).protocol).read_volatile() } {
        TCP | PROTO_MPTCP => Some(PROTO_TCP),
        UDP => Some(PROTO_UDP),
        _ => None,
    }
}

/// Identifies the socket until reboot.
#[inline(always)]
pub(crate) fn cookie(ctx: &SockAddrContext) -> u64 {
    // SAFETY: the helper is available to these hooks and takes their context.
    unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }
}

/// Makes the system call fail with `errno` instead of EPERM.
#[inline(always)]
pub(crate) fn fail_with(errno: i32) {
    // SAFETY: the helper is available to connect and sendmsg hooks.
    unsafe { bpf_set_retval(-errno) };
}
