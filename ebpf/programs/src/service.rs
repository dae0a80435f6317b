//! From a virtual address to one endpoint.

use core::ptr::addr_of;

use aya_ebpf::helpers::bpf_get_prandom_u32;
use seaway_ebpf_abi::{FrontendKey, Service, Slot, SlotKey, counter};

use crate::context::Addr;
use crate::counters::count;
use crate::maps::{SERVICES, SLOTS};

/// An entry can change under a reader once per update of its service; three in one
/// run of a program do not happen unless the maps are damaged.
const ATTEMPTS: u32 = 3;

/// What to do with a destination.
pub(crate) enum Decision {
    /// No service has this address.
    NotOurs,
    /// Go to this endpoint.
    Endpoint(Addr),
    /// The service has no endpoints.
    NoEndpoint,
    /// The maps contradict themselves.
    GaveUp,
}

/// How an endpoint is chosen.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    /// Anew each time, evenly.
    Random,
    /// By this number: the same one while the set stays the same.
    Sticky(u32),
}

/// Looks up `dst` and chooses an endpoint.
#[inline(always)]
pub(crate) fn resolve(dst: Addr, protocol: u8, choice: Choice) -> Decision {
    let key = FrontendKey {
        addr: dst.ip,
        port: dst.port,
        protocol,
        pad: 0,
    };
    for _ in 0..ATTEMPTS {
        let Some(service) = SERVICES.get_ptr(key) else {
            return Decision::NotOurs;
        };
        if let Some(decision) = endpoint(service, &key, choice) {
            return decision;
        }
        count(counter::LOOKUP_RETRIED);
    }
    count(counter::LOOKUP_GAVE_UP);
    Decision::GaveUp
}

/// None when an entry changed meanwhile.
#[inline(always)]
fn endpoint(service: *const Service, key: &FrontendKey, choice: Choice) -> Option<Decision> {
    // SAFETY: `service` is a map value that stays readable while the program runs. It
    // may be reused for another key at any time: owner is read last and decides.
    let (set, count, owner) = unsafe {
        (
            addr_of!((*service).set).read_volatile(),
            addr_of!((*service).count).read_volatile(),
            addr_of!((*service).owner).read_volatile(),
        )
    };
    if owner != *key {
        return None;
    }
    if count == 0 {
        return Some(Decision::NoEndpoint);
    }
    let index = match choice {
        // SAFETY: the helper has no preconditions.
        Choice::Random => unsafe { bpf_get_prandom_u32() },
        Choice::Sticky(number) => number,
    } % count;
    let key = SlotKey { set, index };
    slot(SLOTS.get_ptr(key)?, key).map(Decision::Endpoint)
}

/// None when the slot was reused meanwhile.
#[inline(always)]
fn slot(slot: *const Slot, key: SlotKey) -> Option<Addr> {
    // SAFETY: as in `endpoint`.
    let (ip, port, owner) = unsafe {
        (
            addr_of!((*slot).addr).read_volatile(),
            addr_of!((*slot).port).read_volatile(),
            addr_of!((*slot).owner).read_volatile(),
        )
    };
    (owner == key).then_some(Addr { ip, port })
}
