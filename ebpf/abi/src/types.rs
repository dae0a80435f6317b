//! Keys and values.

/// A 16-bit number in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Be16(u16);

impl Be16 {
    /// From host byte order.
    #[inline]
    pub const fn from_host(value: u16) -> Self {
        Self(value.to_be())
    }

    /// From a field that already is in network byte order.
    #[inline]
    pub const fn from_network(raw: u16) -> Self {
        Self(raw)
    }

    /// In host byte order.
    #[inline]
    pub const fn to_host(self) -> u16 {
        u16::from_be(self.0)
    }

    /// As stored: network byte order.
    #[inline]
    pub const fn network(self) -> u16 {
        self.0
    }
}

/// A 32-bit number in network byte order, mostly an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Be32(u32);

impl Be32 {
    /// From host byte order.
    #[inline]
    pub const fn from_host(value: u32) -> Self {
        Self(value.to_be())
    }

    /// From a field that already is in network byte order.
    #[inline]
    pub const fn from_network(raw: u32) -> Self {
        Self(raw)
    }

    /// In host byte order.
    #[inline]
    pub const fn to_host(self) -> u32 {
        u32::from_be(self.0)
    }

    /// As stored: network byte order.
    #[inline]
    pub const fn network(self) -> u32 {
        self.0
    }
}

/// What clients dial: key of [`SERVICES`](crate::SERVICES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FrontendKey {
    /// Virtual IPv4 address.
    pub addr: Be32,
    /// Service port.
    pub port: Be16,
    /// [`PROTO_TCP`](crate::PROTO_TCP) or [`PROTO_UDP`](crate::PROTO_UDP).
    pub protocol: u8,
    /// Always 0: it is part of the key.
    pub pad: u8,
}

/// Where a frontend leads: value of [`SERVICES`](crate::SERVICES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Service {
    /// The set of endpoints, host byte order; 0 when there are none.
    pub set: u32,
    /// Number of slots in the set, host byte order; 0 means refuse.
    pub count: u32,
    /// The key again, so that a reader notices a reused entry.
    pub owner: FrontendKey,
}

/// One place in a set of endpoints: key of [`SLOTS`](crate::SLOTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct SlotKey {
    /// The set, host byte order.
    pub set: u32,
    /// Place in the set, host byte order, from 0.
    pub index: u32,
}

/// One endpoint: value of [`SLOTS`](crate::SLOTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Slot {
    /// The key again, so that a reader notices a reused entry.
    pub owner: SlotKey,
    /// IPv4 address of the endpoint.
    pub addr: Be32,
    /// Port of the endpoint.
    pub port: Be16,
    /// Always 0.
    pub pad: u16,
}

/// A socket and the endpoint it talks to: key of the reverse maps.
///
/// The cookie keeps apart sockets that merely see the same address, above all
/// accepted sockets, whose peer is a client and must never be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct ReverseKey {
    /// `bpf_get_socket_cookie`, unique until reboot, host byte order.
    pub cookie: u64,
    /// IPv4 address of the endpoint.
    pub addr: Be32,
    /// Port of the endpoint.
    pub port: Be16,
    /// Always 0: it is part of the key.
    pub pad: u16,
}

/// What the application dialled: value of the reverse maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Virtual {
    /// Virtual IPv4 address.
    pub addr: Be32,
    /// Service port.
    pub port: Be16,
    /// Always 0.
    pub pad: u16,
}

const _: () = assert!(size_of::<FrontendKey>() == 8);
const _: () = assert!(size_of::<Service>() == 16);
const _: () = assert!(size_of::<SlotKey>() == 8);
const _: () = assert!(size_of::<Slot>() == 16);
const _: () = assert!(size_of::<ReverseKey>() == 16);
const _: () = assert!(size_of::<Virtual>() == 8);
