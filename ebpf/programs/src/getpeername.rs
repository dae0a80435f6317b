//! getpeername: clients that compare the peer with what they dialled.

use aya_ebpf::programs::SockAddrContext;
use aya_log_ebpf::debug;
use seaway_ebpf_abi::counter;

use crate::context::{Family, addr, protocol, set_addr};
use crate::counters::count;
use crate::reverse;

/// Runs for `accept` as well; an accepted socket has another cookie than the one
/// that connected, so its peer is not found and stays as it is.
#[inline(always)]
pub(crate) fn run<F: Family>(ctx: &SockAddrContext) {
    let (Some(protocol), Some(peer)) = (protocol(ctx), addr::<F>(ctx)) else {
        return;
    };
    let Some(dialled) = reverse::recall(ctx, protocol, peer) else {
        return;
    };
    debug!(
        ctx,
        "getpeername {:i}:{} shown as {:i}:{}",
        peer.ip.to_host(),
        peer.port.to_host(),
        dialled.ip.to_host(),
        dialled.port.to_host()
    );
    set_addr::<F>(ctx, dialled);
    count(counter::GETPEERNAME_TRANSLATED);
}
