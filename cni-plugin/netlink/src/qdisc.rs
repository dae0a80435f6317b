//! Shaping what a link sends.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use crate::IfIndex;

/// A token bucket filter as a link's root queue (`tc-tbf(8)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second on average.
    pub rate: u64,
    /// Bytes that may be sent at once; at least an MTU.
    pub burst: u32,
    /// Bytes that may wait; more are dropped.
    pub limit: u32,
}

/// `TCA_TBF_*`, include/uapi/linux/pkt_sched.h.
const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: no table of transmission times is needed.
const ETHERNET: u8 = 1;
/// `sizeof(struct tc_tbf_qopt)`: two rates of 12 bytes, limit, buffer, MTU.
const PARAMETERS_LENGTH: usize = 36;

impl TokenBucket {
    /// What the kernel calls it, as in [`Link::qdisc`](crate::Link::qdisc).
    pub const KIND: &'static str = "tbf";

    pub(crate) fn message(&self, index: IfIndex) -> TcMessage {
        let mut message = TcMessage::with_index(index.0.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![
            TcAttribute::Kind(Self::KIND.to_owned()),
            TcAttribute::Options(self.options()),
        ];
        message
    }

    fn options(&self) -> Vec<TcOption> {
        let mut parameters = [0; PARAMETERS_LENGTH];
        parameters[1] = ETHERNET;
        let rate = u32::try_from(self.rate).unwrap_or(u32::MAX);
        parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
        parameters[24..28].copy_from_slice(&self.limit.to_ne_bytes());
        let option = |kind, value: &[u8]| TcOption::Other(DefaultNla::new(kind, value.to_vec()));
        let mut options = vec![option(PARAMETERS, &parameters)];
        if rate == u32::MAX {
            options.push(option(RATE64, &self.rate.to_ne_bytes()));
        }
        options.push(option(BURST, &self.burst.to_ne_bytes()));
        options
    }
}
