//! The maps, as `ebpf/abi` describes them.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use seaway_ebpf_abi as abi;
use seaway_ebpf_abi::{FrontendKey, ReverseKey, Service, Slot, SlotKey, Virtual};

const SERVICES_CAPACITY: usize = abi::SERVICES_CAPACITY as usize;
const SLOTS_CAPACITY: usize = abi::SLOTS_CAPACITY as usize;
const REVERSE_CAPACITY: usize = abi::REVERSE_CAPACITY as usize;
const COUNTERS_CAPACITY: usize = abi::counter::COUNT as usize;
const ON_DEMAND: usize = BPF_F_NO_PREALLOC as usize;

#[btf_map]
pub(crate) static SERVICES: HashMap<FrontendKey, Service, SERVICES_CAPACITY, ON_DEMAND> =
    HashMap::new();

#[btf_map]
pub(crate) static SLOTS: HashMap<SlotKey, Slot, SLOTS_CAPACITY, ON_DEMAND> = HashMap::new();

#[btf_map]
pub(crate) static REVERSE_TCP: LruHashMap<ReverseKey, Virtual, REVERSE_CAPACITY> =
    LruHashMap::new();

#[btf_map]
pub(crate) static REVERSE_UDP: LruHashMap<ReverseKey, Virtual, REVERSE_CAPACITY> =
    LruHashMap::new();

#[btf_map]
pub(crate) static COUNTERS: PerCpuArray<u64, COUNTERS_CAPACITY> = PerCpuArray::new();
