//! What `fuzz/` calls. Compiled by `cargo xtask fuzz` only.

use seaway_netlink::Family;
use seaway_netlink::wire::Reply;

use crate::conntrack::Flow;
use crate::message::{mark, place_and_comment};
use crate::set::elements;

/// What nfnetlink says of a rule, of a set's elements or of a tracked flow.
pub fn reply(bytes: &[u8]) {
    let reply = Reply {
        kind: 0,
        payload: bytes.to_vec(),
    };
    drop(elements(&reply));
    drop(mark(&reply));
    drop(place_and_comment(&reply));
    for family in [Family::V4, Family::V6] {
        drop(Flow::parse(&reply, family));
    }
}
