//! What is in the maps, while others change them.
//!
//! The kernel lists a set in the order of its hash table, from the start for each message, and
//! passes over as many elements as it has listed before (net/netfilter/nft_set_hash.c,
//! `nft_rhash_walk`). When elements go or the table is made anew between two messages, one is
//! left out, and `NLM_F_DUMP_INTR` does not tell; when the table is made anew within a message,
//! elements are named twice. A list in one message lacks nothing.

use std::collections::BTreeMap;

use seaway_netlink::wire::Reply;
use seaway_netlink::{Family, NetlinkError};

use crate::firewall::{Firewall, FirewallError};
use crate::hostports::SETS;
use crate::set::{Element, elements, list_elements};

/// Bytes below which a message had room for one more element, at each look. The kernel makes
/// messages larger (32 KiB, net/netlink/af_netlink.c `netlink_dump`) once it has seen how much
/// we have room for; the first has less than a page.
const NOT_FULL: [usize; LOOKS] = [3_000, 30_000, 30_000];
/// Looks at a list in several messages. Of a thousand elements, of which others change some as
/// fast as they can, a few looks in a hundred lacked a dozen.
const LOOKS: usize = 3;

impl Firewall {
    /// Every element of our maps; none when there are no maps.
    pub(crate) fn host_port_elements(
        &mut self,
        family: Family,
    ) -> Result<Vec<Element>, FirewallError> {
        let mut all = Vec::new();
        for set in SETS {
            let found = match self.elements_of(family, set) {
                Ok(found) => found,
                Err(error) if error.is_not_found() || error.is_unsupported() => continue,
                Err(source) => return Err(FirewallError::Read { family, source }),
            };
            all.extend(found.into_iter().map(|(key, data)| Element {
                set,
                key,
                data,
                text: String::from("of a pod"),
            }));
        }
        Ok(all)
    }

    /// Each element once, by its key. Where no look is sure to be whole, what any of them has
    /// found.
    fn elements_of(
        &mut self,
        family: Family,
        set: &str,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, NetlinkError> {
        let mut found = BTreeMap::new();
        for not_full in NOT_FULL {
            let replies = self.wire.dump(&list_elements(family, set))?;
            if is_whole(&replies, not_full) {
                return Ok(replies.iter().flat_map(elements).collect());
            }
            found.extend(replies.iter().flat_map(elements));
        }
        Ok(found)
    }
}

/// Whether the first message had all; the kernel asks itself for more until there is none.
fn is_whole(replies: &[Reply], not_full: usize) -> bool {
    let Some((first, rest)) = replies.split_first() else {
        return true;
    };
    first.payload.len() < not_full && rest.iter().all(|reply| elements(reply).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::add_new_elements;

    fn message(count: u8) -> Reply {
        let element = |n| Element {
            set: SETS[0],
            key: vec![n; 24],
            data: vec![n; 20],
            text: String::new(),
        };
        let elements: Vec<Element> = (0..count).map(element).collect();
        let frame = add_new_elements(Family::V6, &elements).pop();
        frame.map_or_else(
            || Reply {
                kind: 0,
                payload: vec![0; 4],
            },
            |frame| Reply {
                kind: frame.kind,
                payload: frame.payload,
            },
        )
    }

    #[test]
    fn a_list_is_whole_in_one_message_that_is_not_full() {
        assert!(is_whole(&[], 3_000));
        assert!(is_whole(&[message(0)], 3_000));
        assert!(is_whole(&[message(20), message(0)], 3_000));
        assert!(!is_whole(&[message(60), message(0)], 3_000));
        assert!(is_whole(&[message(60), message(0)], 30_000));
        assert!(!is_whole(&[message(20), message(1), message(0)], 30_000));
    }
}
