//! What `fuzz/` calls. Compiled by `cargo xtask fuzz` only.

use seaway_netlink::Family;
use seaway_netlink::wire::Reply;

use crate::conntrack::Flow;
use crate::fate::fate;
use crate::foreign::foreign_chain;
use crate::forward::notable;
use crate::message::{mark, place_and_comment};
use crate::set::elements;
use crate::watch::{judge, read};

/// What nfnetlink says of a rule, a chain, a set's elements or a tracked flow, and what it tells
/// unasked.
pub fn reply(bytes: &[u8]) {
    let reply = Reply {
        kind: 0,
        payload: bytes.to_vec(),
    };
    drop(elements(&reply));
    drop(mark(&reply));
    drop(place_and_comment(&reply));
    drop(foreign_chain(&reply));
    drop(notable(&reply));
    std::hint::black_box(fate(&reply));
    read(bytes, &mut |heard| {
        std::hint::black_box(judge(heard));
    });
    for family in [Family::V4, Family::V6] {
        drop(Flow::parse(&reply, family));
    }
}
