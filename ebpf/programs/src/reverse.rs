//! Remembering which virtual address a socket meant by an endpoint.

use aya_ebpf::programs::SockAddrContext;
use seaway_ebpf_abi::{PROTO_TCP, ReverseKey, Virtual};

use crate::context::{Addr, cookie};
use crate::maps::{REVERSE_TCP, REVERSE_UDP};

#[inline(always)]
fn key(ctx: &SockAddrContext, endpoint: Addr) -> ReverseKey {
    ReverseKey {
        cookie: cookie(ctx),
        addr: endpoint.ip,
        port: endpoint.port,
        pad: 0,
    }
}

/// Remembers; false when the kernel has no memory for it.
#[inline(always)]
pub(crate) fn remember(ctx: &SockAddrContext, protocol: u8, endpoint: Addr, dialled: Addr) -> bool {
    let key = key(ctx, endpoint);
    let value = Virtual {
        addr: dialled.ip,
        port: dialled.port,
        pad: 0,
    };
    let map = if protocol == PROTO_TCP {
        &REVERSE_TCP
    } else {
        &REVERSE_UDP
    };
    map.insert(key, value, 0).is_ok()
}

/// Forgets, because the socket now means the endpoint itself.
#[inline(always)]
pub(crate) fn forget_udp(ctx: &SockAddrContext, endpoint: Addr) {
    // Mostly nothing is there; that is not an error.
    REVERSE_UDP.remove(key(ctx, endpoint)).ok();
}

/// The virtual address that the socket meant.
#[inline(always)]
pub(crate) fn recall(ctx: &SockAddrContext, protocol: u8, endpoint: Addr) -> Option<Addr> {
    let key = key(ctx, endpoint);
    let map = if protocol == PROTO_TCP {
        &REVERSE_TCP
    } else {
        &REVERSE_UDP
    };
    // SAFETY: the value is copied at once. Should eviction reuse the entry in between,
    // the answer belongs to another socket; only memory pressure can bring that about.
    let dialled = unsafe { *map.get_ptr(key)? };
    Some(Addr {
        ip: dialled.addr,
        port: dialled.port,
    })
}
