//! What the maps hold, numbers included, and the way from there to a wanted content.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};

use seaway_ebpf_abi::{
    Be16, Be32, FrontendKey, PROTO_TCP, PROTO_UDP, SLOTS_CAPACITY, Service, Slot, SlotKey,
};
use seaway_proxy_core::desired::Protocol;

use crate::render::{FrontendAddr, Rendered};

/// Stands for a slot that should be there and is not; no endpoint looks like it.
const LOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// IANA's protocol number.
const IPPROTO_SCTP: u8 = 132;

/// One change of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    PutSlot(SlotKey, SocketAddrV4),
    PutService(FrontendKey, Service),
    DeleteService(FrontendKey),
    DeleteSlot(SlotKey),
}

/// The maps' content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    services: BTreeMap<FrontendKey, Service>,
    slots: BTreeMap<SlotKey, SocketAddrV4>,
}

impl Table {
    /// As dumped from the maps.
    pub(crate) fn new(
        services: impl IntoIterator<Item = (FrontendKey, Service)>,
        slots: impl IntoIterator<Item = (SlotKey, Slot)>,
    ) -> Self {
        let slots = slots.into_iter().map(|(key, slot)| {
            let addr = if slot.owner == key {
                endpoint(slot)
            } else {
                LOST
            };
            (key, addr)
        });
        Self {
            services: services.into_iter().collect(),
            slots: slots.collect(),
        }
    }

    /// Without the numbers; with the programs that are attached.
    pub(crate) fn rendered(&self, links: BTreeSet<&'static str>) -> Rendered {
        let services = self.services.iter().map(|(key, service)| {
            let endpoints = if service.owner == *key {
                self.endpoints(*service)
            } else {
                vec![LOST]
            };
            (addr_of(*key), endpoints)
        });
        let used: BTreeSet<_> = self.services.values().flat_map(|s| keys(*s)).collect();
        let orphans = self.slots.keys().filter(|key| !used.contains(key)).count();
        Rendered {
            links,
            services: services.collect(),
            orphans,
        }
    }

    /// Records that an op was done.
    pub(crate) fn done(&mut self, op: Op) {
        match op {
            Op::PutSlot(key, addr) => drop(self.slots.insert(key, addr)),
            Op::PutService(key, service) => drop(self.services.insert(key, service)),
            Op::DeleteService(key) => drop(self.services.remove(&key)),
            Op::DeleteSlot(key) => drop(self.slots.remove(&key)),
        }
    }

    /// Steps to `want`. New sets come first, then services move to them, deletions are
    /// last: at each step every service leads to a complete set, its old or its new one.
    pub(crate) fn plan(&self, want: &Rendered) -> Vec<Op> {
        let mut sets = Sets::new(self);
        let mut put_services = Vec::new();
        let mut put_slots = Vec::new();
        let mut after = BTreeMap::new();
        for (frontend, endpoints) in &want.services {
            let key = key_of(*frontend);
            let current = self.services.get(&key).filter(|s| s.owner == key);
            if let Some(current) = current.filter(|s| self.endpoints(**s) == *endpoints) {
                after.insert(key, *current);
                continue;
            }
            let set = sets.find_or_add(endpoints, &mut put_slots);
            let service = Service {
                set,
                count: length(endpoints),
                owner: key,
            };
            put_services.push(Op::PutService(key, service));
            after.insert(key, service);
        }
        let mut ops = put_slots;
        ops.append(&mut put_services);
        ops.extend(self.deletions(&after));
        ops
    }

    fn deletions(&self, after: &BTreeMap<FrontendKey, Service>) -> Vec<Op> {
        let gone = self.services.keys().filter(|key| !after.contains_key(key));
        let used: BTreeSet<_> = after.values().flat_map(|s| keys(*s)).collect();
        let unused = self.slots.keys().filter(|key| !used.contains(key));
        gone.map(|key| Op::DeleteService(*key))
            .chain(unused.map(|key| Op::DeleteSlot(*key)))
            .collect()
    }

    fn endpoints(&self, service: Service) -> Vec<SocketAddrV4> {
        keys(service)
            .map(|key| self.slots.get(&key).copied().unwrap_or(LOST))
            .collect()
    }
}

/// Sets by content, and the numbers in use.
struct Sets {
    by_content: HashMap<Vec<SocketAddrV4>, u32>,
    used: BTreeSet<u32>,
    last: u32,
}

impl Sets {
    fn new(table: &Table) -> Self {
        let mut contents = BTreeMap::<u32, Vec<SocketAddrV4>>::new();
        let mut damaged = BTreeSet::new();
        for (key, addr) in &table.slots {
            let content = contents.entry(key.set).or_default();
            // In key order: a gap shows as an index ahead of the length.
            if length(content) != key.index || *addr == LOST {
                damaged.insert(key.set);
            }
            content.push(*addr);
        }
        let named = table.services.values().map(|s| s.set);
        let used: BTreeSet<_> = contents.keys().copied().chain(named).collect();
        let sound = contents
            .into_iter()
            .filter(|(set, _)| !damaged.contains(set));
        let by_content = sound.map(|(set, content)| (content, set)).collect();
        let last = used.last().copied().unwrap_or(0);
        Self {
            by_content,
            used,
            last,
        }
    }

    fn find_or_add(&mut self, endpoints: &[SocketAddrV4], put: &mut Vec<Op>) -> u32 {
        if endpoints.is_empty() {
            return 0;
        }
        if let Some(set) = self.by_content.get(endpoints) {
            return *set;
        }
        let set = self.next();
        self.by_content.insert(endpoints.to_vec(), set);
        let slots = (0..).zip(endpoints);
        put.extend(slots.map(|(index, addr)| Op::PutSlot(SlotKey { set, index }, *addr)));
        set
    }

    /// Numbers count up, so that a reader of an old service meets nobody else's set.
    fn next(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && self.used.insert(self.last) {
                return self.last;
            }
        }
    }
}

/// Slots of a service. A damaged count cannot make it longer than the map.
fn keys(service: Service) -> impl Iterator<Item = SlotKey> {
    (0..service.count.min(SLOTS_CAPACITY)).map(move |index| SlotKey {
        set: service.set,
        index,
    })
}

fn length(endpoints: &[SocketAddrV4]) -> u32 {
    u32::try_from(endpoints.len()).unwrap_or(u32::MAX)
}

fn key_of((addr, protocol): FrontendAddr) -> FrontendKey {
    FrontendKey {
        addr: Be32::from_host(addr.ip().to_bits()),
        port: Be16::from_host(addr.port()),
        protocol: match protocol {
            Protocol::Tcp => PROTO_TCP,
            Protocol::Udp => PROTO_UDP,
            // Never rendered: nothing is looked up by it.
            Protocol::Sctp => IPPROTO_SCTP,
        },
        pad: 0,
    }
}

/// A protocol that we never write counts as UDP; such a key differs from every key
/// that is wanted, so its service is deleted.
fn addr_of(key: FrontendKey) -> FrontendAddr {
    let addr = SocketAddrV4::new(Ipv4Addr::from_bits(key.addr.to_host()), key.port.to_host());
    let protocol = if key.protocol == PROTO_TCP {
        Protocol::Tcp
    } else {
        Protocol::Udp
    };
    (addr, protocol)
}

fn endpoint(slot: Slot) -> SocketAddrV4 {
    SocketAddrV4::new(
        Ipv4Addr::from_bits(slot.addr.to_host()),
        slot.port.to_host(),
    )
}

/// The value of a slot.
pub(crate) fn slot(owner: SlotKey, addr: SocketAddrV4) -> Slot {
    Slot {
        owner,
        addr: Be32::from_host(addr.ip().to_bits()),
        port: Be16::from_host(addr.port()),
        pad: 0,
    }
}

#[cfg(test)]
mod tests;
