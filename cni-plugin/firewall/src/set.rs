//! Sets and maps, and their elements, as messages.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NlasIterator};
use seaway_netlink::Family;
use seaway_netlink::wire::{Frame, Reply};

use crate::TABLE;
use crate::attributes::Attributes;
use crate::expression::{DATA_VALUE, LIST_ELEMENT};
use crate::hostports::SETS;
use crate::message::{frame, number};
use crate::ruleset::{Field, Set};

const NEW_SET: u16 = 9;
const NEW_ELEMENT: u16 = 12;
const GET_ELEMENT: u16 = 13;
const DELETE_ELEMENT: u16 = 14;

const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_DATA_TYPE: u16 = 6;
const SET_DATA_LENGTH: u16 = 7;
const SET_ID: u16 = 10;
const FLAG_MAP: u32 = 8;

const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS_LIST: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;

/// One element; `data` is empty in a set without data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) set: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) data: Vec<u8>,
    /// For errors.
    pub(crate) text: String,
}

impl Field {
    fn length(self, family: Family) -> u32 {
        match (self, family) {
            (Self::Address, Family::V6) => 16,
            _ => 4,
        }
    }

    /// nft's number of the type, by which it prints elements.
    fn nft_type(self, family: Family) -> u32 {
        match (self, family) {
            (Self::Address, Family::V4) => 7,
            (Self::Address, Family::V6) => 8,
            (Self::Protocol, _) => 12,
            (Self::Port, _) => 13,
        }
    }
}

fn length(fields: &[Field], family: Family) -> u32 {
    fields.iter().map(|field| field.length(family)).sum()
}

fn nft_type(fields: &[Field], family: Family) -> u32 {
    fields
        .iter()
        .fold(0, |sum, field| sum << 6 | field.nft_type(family))
}

pub(crate) fn new_set(family: Family, set: &Set) -> Frame {
    let mut attributes = Attributes::after_header(number(family), 0)
        .text(SET_TABLE, TABLE)
        .text(SET_NAME, set.name)
        .number(SET_KEY_TYPE, nft_type(set.key, family))
        .number(SET_KEY_LENGTH, length(set.key, family))
        // Required, and only used within the transaction, where the name does.
        .number(SET_ID, 1);
    if !set.data.is_empty() {
        attributes = attributes
            .number(SET_FLAGS, FLAG_MAP)
            .number(SET_DATA_TYPE, nft_type(set.data, family))
            .number(SET_DATA_LENGTH, length(set.data, family));
    }
    frame(
        NEW_SET,
        NLM_F_CREATE,
        attributes,
        "set add",
        family,
        set.name,
    )
}

/// Elements per message: with the longest ones it stays far below the 64 KiB of
/// an attribute, and acknowledgements stay few.
const AT_ONCE: usize = 200;

/// Adds elements; fails when a map has one with the key of one of them.
pub(crate) fn add_new_elements(family: Family, elements: &[Element]) -> Vec<Frame> {
    // A set knows no difference between old and new.
    let (maps, sets): (Vec<Element>, Vec<Element>) =
        elements.iter().cloned().partition(|e| !e.data.is_empty());
    let exclusive = NLM_F_CREATE | NLM_F_EXCL;
    let mut frames = element_frames(NEW_ELEMENT, exclusive, "element add", family, &maps);
    frames.extend(add_elements(family, &sets));
    frames
}

/// Adds elements that may be there already; one with this key and other data
/// is refused.
pub(crate) fn add_elements(family: Family, elements: &[Element]) -> Vec<Frame> {
    element_frames(NEW_ELEMENT, NLM_F_CREATE, "element add", family, elements)
}

/// Fails when one of them is not there.
pub(crate) fn delete_elements(family: Family, elements: &[Element]) -> Vec<Frame> {
    element_frames(DELETE_ELEMENT, 0, "element delete", family, elements)
}

/// Messages of one kind about elements, in the order of [`SETS`].
fn element_frames(
    kind: u16,
    flags: u16,
    op: &'static str,
    family: Family,
    elements: &[Element],
) -> Vec<Frame> {
    let mut frames = Vec::new();
    for set in SETS {
        let of_set: Vec<&Element> = elements.iter().filter(|e| e.set == set).collect();
        for some in of_set.chunks(AT_ONCE) {
            let mut list = Attributes::default();
            for element in some {
                list = list.nested(LIST_ELEMENT, &attributes_of(element, kind));
            }
            let attributes = Attributes::after_header(number(family), 0)
                .text(ELEMENTS_TABLE, TABLE)
                .text(ELEMENTS_SET, set)
                .nested(ELEMENTS_LIST, &list);
            let what = match some {
                [one] => format!("{set} {}", one.text),
                many => format!("{set}, {} of them", many.len()),
            };
            frames.push(frame(kind, flags, attributes, op, family, &what));
        }
    }
    frames
}

fn attributes_of(element: &Element, kind: u16) -> Attributes {
    let value = |bytes: &[u8]| Attributes::default().bytes(DATA_VALUE, bytes);
    let attributes = Attributes::default().nested(ELEMENT_KEY, &value(&element.key));
    if element.data.is_empty() || kind != NEW_ELEMENT {
        return attributes;
    }
    attributes.nested(ELEMENT_DATA, &value(&element.data))
}

/// Asks for all elements of a set.
pub(crate) fn list_elements(family: Family, set: &str) -> Frame {
    let attributes = Attributes::after_header(number(family), 0)
        .text(ELEMENTS_TABLE, TABLE)
        .text(ELEMENTS_SET, set);
    frame(GET_ELEMENT, 0, attributes, "element list", family, set)
}

/// The elements in a part of the list, as (key, data).
pub(crate) fn elements(reply: &Reply) -> Vec<(Vec<u8>, Vec<u8>)> {
    let body = reply.payload.get(4..).unwrap_or_default();
    let Some(list) = find(body, ELEMENTS_LIST) else {
        return Vec::new();
    };
    let items = NlasIterator::new(list.as_slice()).flatten();
    items
        .filter_map(|item| {
            let value = |kind| find(&find(item.value(), kind)?, DATA_VALUE);
            Some((value(ELEMENT_KEY)?, value(ELEMENT_DATA).unwrap_or_default()))
        })
        .collect()
}

/// The value of the first attribute of a kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<Vec<u8>> {
    NlasIterator::new(bytes)
        .flatten()
        .find(|attribute| attribute.kind() == kind)
        .map(|attribute| attribute.value().to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conntrack;
    use crate::message::mark;

    proptest! {
        #[test]
        fn any_reply_is_read_or_passed_over(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let reply = Reply { kind: 0, payload };
            drop(elements(&reply));
            drop(mark(&reply));
            for family in [Family::V4, Family::V6] {
                drop(conntrack::Flow::parse(&reply, family));
            }
        }

        #[test]
        fn what_was_written_is_read_back(
            key in prop::collection::vec(any::<u8>(), 1..32),
            data in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let (set, text) = (SETS[0], String::new());
            let element = Element { set, key, data, text };
            let frame = add_new_elements(Family::V4, std::slice::from_ref(&element)).remove(0);
            let reply = Reply { kind: frame.kind, payload: frame.payload };
            prop_assert_eq!(elements(&reply), [(element.key, element.data)]);
        }
    }
}
