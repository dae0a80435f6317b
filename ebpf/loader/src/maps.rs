//! Typed handles of the maps that the loader reads and writes.

use std::net::SocketAddrV4;

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray};
use seaway_ebpf_abi as abi;
use seaway_ebpf_abi::{FrontendKey, Service, Slot, SlotKey, counter};

use crate::Error;
use crate::table::{Op, Table, slot};

/// The maps of one pin directory.
pub(crate) struct Maps {
    services: HashMap<MapData, FrontendKey, Service>,
    slots: HashMap<MapData, SlotKey, Slot>,
    counters: PerCpuArray<MapData, u64>,
}

impl Maps {
    /// Takes them out of a loaded object.
    pub(crate) fn take(object: &mut aya::Ebpf) -> Result<Self, Error> {
        Ok(Self {
            services: take(object, abi::SERVICES)?,
            slots: take(object, abi::SLOTS)?,
            counters: take(object, abi::COUNTERS)?,
        })
    }

    /// Reads everything. Nobody else writes, since the pins are locked.
    pub(crate) fn dump(&self) -> Result<Table, Error> {
        let services = self.services.iter().collect::<Result<Vec<_>, _>>();
        let slots = self.slots.iter().collect::<Result<Vec<_>, _>>();
        Ok(Table::new(
            services.map_err(failed("read", abi::SERVICES))?,
            slots.map_err(failed("read", abi::SLOTS))?,
        ))
    }

    /// Does one step.
    pub(crate) fn execute(&mut self, op: Op) -> Result<(), MapError> {
        match op {
            Op::PutSlot(key, addr) => self.slots.insert(key, slot(key, addr), 0),
            Op::PutService(key, service) => self.services.insert(key, service, 0),
            Op::DeleteService(key) => absent_is_fine(self.services.remove(&key)),
            Op::DeleteSlot(key) => absent_is_fine(self.slots.remove(&key)),
        }
    }

    /// Sums over all CPUs, in the order of [`counter::NAMES`].
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        let numbered = (0..).zip(counter::NAMES);
        numbered
            .map(|(number, name)| {
                let values = self
                    .counters
                    .get(&number, 0)
                    .map_err(failed("read", abi::COUNTERS))?;
                Ok((name, values.iter().sum()))
            })
            .collect()
    }
}

fn take<T: TryFrom<Map, Error = MapError>>(
    object: &mut aya::Ebpf,
    name: &'static str,
) -> Result<T, Error> {
    let map = object.take_map(name).ok_or(Error::Missing { name })?;
    T::try_from(map).map_err(failed("use", name))
}

pub(crate) fn failed(operation: &'static str, map: &'static str) -> impl FnOnce(MapError) -> Error {
    move |source| Error::Map {
        operation,
        map,
        source: Box::new(source),
    }
}

fn absent_is_fine(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// The set that a slot belongs to or a service leads to; none for deletions.
pub(crate) fn set_of(op: Op) -> Option<u32> {
    match op {
        Op::PutSlot(key, _) => Some(key.set),
        Op::PutService(_, service) => Some(service.set),
        Op::DeleteService(_) | Op::DeleteSlot(_) => None,
    }
}

/// Names the entry, for messages.
pub(crate) fn describe(op: Op) -> String {
    let frontend = |key: FrontendKey| {
        let addr = std::net::Ipv4Addr::from_bits(key.addr.to_host());
        format!("service {}", SocketAddrV4::new(addr, key.port.to_host()))
    };
    match op {
        Op::PutSlot(key, addr) => format!("slot {}/{} ({addr})", key.set, key.index),
        Op::DeleteSlot(key) => format!("slot {}/{}", key.set, key.index),
        Op::PutService(key, _) | Op::DeleteService(key) => frontend(key),
    }
}
