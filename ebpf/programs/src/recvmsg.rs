//! recvmsg: the source of a datagram, when the application asks for it.

use aya_ebpf::programs::SockAddrContext;
use aya_log_ebpf::debug;
use seaway_ebpf_abi::{PROTO_UDP, counter};

use crate::context::{Family, addr, protocol, set_addr};
use crate::counters::count;
use crate::reverse;

#[inline(always)]
pub(crate) fn run<F: Family>(ctx: &SockAddrContext) {
    let (Some(PROTO_UDP), Some(src)) = (protocol(ctx), addr::<F>(ctx)) else {
        return;
    };
    let Some(dialled) = reverse::recall(ctx, PROTO_UDP, src) else {
        return;
    };
    debug!(
        ctx,
        "recvmsg {:i}:{} shown as {:i}:{}",
        src.ip.to_host(),
        src.port.to_host(),
        dialled.ip.to_host(),
        dialled.port.to_host()
    );
    set_addr::<F>(ctx, dialled);
    count(counter::RECVMSG_TRANSLATED);
}
