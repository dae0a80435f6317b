//! Numbers of the events that the programs count, and their names.

/// A connect was sent to an endpoint.
pub const CONNECT_TRANSLATED: u32 = 0;
/// A datagram of an unconnected socket was sent to an endpoint.
pub const SENDMSG_TRANSLATED: u32 = 1;
/// A connect was refused because the service has no endpoints.
pub const CONNECT_NO_ENDPOINT: u32 = 2;
/// A datagram was refused because the service has no endpoints.
pub const SENDMSG_NO_ENDPOINT: u32 = 3;
/// An entry changed while it was read, and the lookup was repeated.
pub const LOOKUP_RETRIED: u32 = 4;
/// The lookup was repeated often enough and given up; the call was refused.
pub const LOOKUP_GAVE_UP: u32 = 5;
/// The peer of a TCP socket could not be remembered; getpeername shows the endpoint.
pub const REVERSE_TCP_FAILED: u32 = 6;
/// The peer of a UDP socket could not be remembered; the call was refused.
pub const REVERSE_UDP_FAILED: u32 = 7;
/// The source of a datagram was turned back into the virtual address.
pub const RECVMSG_TRANSLATED: u32 = 8;
/// The answer of getpeername was turned back into the virtual address.
pub const GETPEERNAME_TRANSLATED: u32 = 9;

/// Length of the array.
pub const COUNT: u32 = 10;

/// Name of each counter, by number.
pub const NAMES: [&str; COUNT as usize] = [
    "connect_translated",
    "sendmsg_translated",
    "connect_no_endpoint",
    "sendmsg_no_endpoint",
    "lookup_retried",
    "lookup_gave_up",
    "reverse_tcp_failed",
    "reverse_udp_failed",
    "recvmsg_translated",
    "getpeername_translated",
];
