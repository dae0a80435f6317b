//! sendmsg: datagrams of unconnected sockets.

use aya_ebpf::programs::SockAddrContext;
use aya_log_ebpf::debug;
use seaway_ebpf_abi::{PROTO_UDP, counter};

use crate::connect::{ECONNREFUSED, ENOMEM};
use crate::context::{Addr, Family, addr, cookie, fail_with, protocol, set_addr};
use crate::counters::count;
use crate::service::{Choice, Decision, resolve};
use crate::{PROCEED, REJECT, reverse};

#[inline(always)]
pub(crate) fn run<F: Family>(ctx: &SockAddrContext) -> i32 {
    let (Some(PROTO_UDP), Some(dst)) = (protocol(ctx), addr::<F>(ctx)) else {
        return PROCEED;
    };
    let endpoint = match resolve(dst, PROTO_UDP, Choice::Sticky(flow(cookie(ctx), dst))) {
        Decision::NotOurs => return PROCEED,
        Decision::Endpoint(endpoint) => endpoint,
        Decision::NoEndpoint => {
            debug!(
                ctx,
                "sendmsg {:i}:{} refused",
                dst.ip.to_host(),
                dst.port.to_host()
            );
            count(counter::SENDMSG_NO_ENDPOINT);
            fail_with(ECONNREFUSED);
            return REJECT;
        }
        Decision::GaveUp => {
            fail_with(ECONNREFUSED);
            return REJECT;
        }
    };
    if !reverse::remember(ctx, PROTO_UDP, endpoint, dst) {
        count(counter::REVERSE_UDP_FAILED);
        fail_with(ENOMEM);
        return REJECT;
    }
    debug!(
        ctx,
        "sendmsg {:i}:{} to {:i}:{}",
        dst.ip.to_host(),
        dst.port.to_host(),
        endpoint.ip.to_host(),
        endpoint.port.to_host()
    );
    set_addr::<F>(ctx, endpoint);
    count(counter::SENDMSG_TRANSLATED);
    PROCEED
}

/// A number for this socket and destination. The datagrams of one exchange belong
/// together (QUIC, TFTP), as they do where conntrack keeps the flow.
#[inline(always)]
fn flow(cookie: u64, dst: Addr) -> u32 {
    // Fibonacci hashing: cookies are consecutive numbers, the high half is well mixed.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let dst = u64::from(dst.ip.network()) << 16 | u64::from(dst.port.network());
    let mixed = (cookie ^ dst.wrapping_mul(GOLDEN)).wrapping_mul(GOLDEN);
    ((mixed ^ (mixed >> 29)).wrapping_mul(GOLDEN) >> 32) as u32
}
