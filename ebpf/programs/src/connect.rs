//! connect: the one moment at which a TCP or connected UDP socket chooses its endpoint.

use aya_ebpf::programs::SockAddrContext;
use aya_log_ebpf::debug;
use seaway_ebpf_abi::{PROTO_UDP, counter};

use crate::context::{Family, addr, fail_with, protocol, set_addr};
use crate::counters::count;
use crate::service::{Choice, Decision, resolve};
use crate::{PROCEED, REJECT, reverse};

/// `ECONNREFUSED`, what a client sees where netfilter rejects; `asm-generic/errno.h`.
pub(crate) const ECONNREFUSED: i32 = 111;
/// `ENOMEM`, from `asm-generic/errno-base.h`.
pub(crate) const ENOMEM: i32 = 12;

#[inline(always)]
pub(crate) fn run<F: Family>(ctx: &SockAddrContext) -> i32 {
    let (Some(protocol), Some(dst)) = (protocol(ctx), addr::<F>(ctx)) else {
        return PROCEED;
    };
    let endpoint = match resolve(dst, protocol, Choice::Random) {
        Decision::NotOurs => {
            if protocol == PROTO_UDP {
                reverse::forget_udp(ctx, dst);
            }
            return PROCEED;
        }
        Decision::Endpoint(endpoint) => endpoint,
        Decision::NoEndpoint => {
            debug!(
                ctx,
                "connect {:i}:{} refused",
                dst.ip.to_host(),
                dst.port.to_host()
            );
            count(counter::CONNECT_NO_ENDPOINT);
            fail_with(ECONNREFUSED);
            return REJECT;
        }
        Decision::GaveUp => {
            fail_with(ECONNREFUSED);
            return REJECT;
        }
    };
    if !reverse::remember(ctx, protocol, endpoint, dst) {
        if protocol == PROTO_UDP {
            // Its replies would come from an address that the application never used.
            count(counter::REVERSE_UDP_FAILED);
            fail_with(ENOMEM);
            return REJECT;
        }
        count(counter::REVERSE_TCP_FAILED);
    }
    debug!(
        ctx,
        "connect {:i}:{} to {:i}:{}",
        dst.ip.to_host(),
        dst.port.to_host(),
        endpoint.ip.to_host(),
        endpoint.port.to_host()
    );
    set_addr::<F>(ctx, endpoint);
    count(counter::CONNECT_TRANSLATED);
    PROCEED
}
