//! What follows from an attachment's name alone: interface names, hardware
//! addresses and numbers.

use seaway_netlink::{IfIndex, MacAddr};
use sha2::{Digest as _, Sha256};

/// Everything that follows from container id and interface name alone, so
/// that DEL finds it without any memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The host's end: `sw` and 12 hexadecimal digits.
    pub(crate) host_ifname: String,
    pub(super) host_mac: MacAddr,
    pub(super) pod_mac: MacAddr,
    /// Candidates for the host's interface number; the pod's is one higher.
    pub(super) indexes: [u32; ATTEMPTS],
}

/// The kernel's group (`IFLA_GROUP`) of all pairs of a network: by it garbage
/// collection tells its own orphans from other networks'. 0 is everybody's.
pub(crate) fn group(network: &str) -> u32 {
    let hash = Sha256::digest(network);
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) | 1 << 31
}

/// Whether the number may be a [`group`].
pub(crate) fn is_group(number: u32) -> bool {
    number & 1 << 31 != 0
}

/// Whether the name has the form of [`Identity::host_ifname`].
pub(crate) fn is_host_ifname(name: &str) -> bool {
    name.strip_prefix("sw").is_some_and(|hex| {
        hex.len() == 12 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// One attempt at numbers for the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indexes {
    pub(crate) host: IfIndex,
    pub(crate) pod: IfIndex,
}

/// With 2^27 numbers and a thousand pods, one attempt collides once in 10^5.
const ATTEMPTS: usize = 3;
/// Far above what the kernel counts up to on its own, below `i32::MAX`.
pub(super) const FIRST_INDEX: u32 = 1 << 28;
const INDEX_MASK: u32 = FIRST_INDEX - 1;
impl Identity {
    pub(crate) fn of(container_id: &str, ifname: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(container_id);
        hash.update([0]);
        hash.update(ifname);
        let hash: [u8; 32] = hash.finalize().into();
        let hex = hash.iter().take(6).map(|byte| format!("{byte:02x}"));
        // Unlike the pod's, an equal number of its own: the kernel compares
        // an interface's number with its peer's to tell stacked links.
        let index = |place: usize| {
            let bytes = [
                hash[place],
                hash[place + 1],
                hash[place + 2],
                hash[place + 3],
            ];
            FIRST_INDEX + (u32::from_be_bytes(bytes) & INDEX_MASK & !1)
        };
        Self {
            host_ifname: format!("sw{}", hex.collect::<String>()),
            host_mac: mac(&hash, 6),
            pod_mac: mac(&hash, 12),
            indexes: [index(18), index(22), index(26)],
        }
    }
}

fn mac(hash: &[u8; 32], start: usize) -> MacAddr {
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&hash[start..start + 6]);
    MacAddr::local(bytes)
}
