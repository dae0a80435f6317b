//! Counting events, per CPU.

use crate::maps::COUNTERS;

/// Counts one event of a kind in `seaway_ebpf_abi::counter`.
#[inline(always)]
pub(crate) fn count(counter: u32) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter) {
        // SAFETY: a valid element of this CPU. Programs do not move between CPUs, but
        // one may interrupt another, which then loses at most one count.
        unsafe { *value += 1 };
    }
}
