//! Netlink attributes, without copies.

use netlink_packet_core::{DefaultNla, Emitable as _, NLA_HEADER_SIZE, NlasIterator};

/// One attribute after the other, by kind and value; the last is `None` if it is damaged.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Option<(u16, &[u8])>> {
    NlasIterator::new(bytes).map(|found| {
        let found = found.ok()?;
        let (kind, length) = (found.kind(), found.value_length());
        // Its own `value` lives only as long as itself.
        let value = found.into_inner().get(NLA_HEADER_SIZE..)?.get(..length)?;
        Some((kind, value))
    })
}

/// The first of a kind.
pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = attributes(bytes).flatten();
    all.find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// Text that ends with a zero.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_suffix(&[0])?).ok()
}

/// A number in network byte order.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// Appends a text.
pub(super) fn encode(bytes: &mut Vec<u8>, kind: u16, text: &str) {
    append(bytes, kind, &[text.as_bytes(), &[0]].concat());
}

/// Appends an attribute.
pub(super) fn append(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let begin = bytes.len();
    bytes.resize(begin + attribute.buffer_len(), 0);
    attribute.emit(&mut bytes[begin..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, "nat");
        encode(&mut bytes, 2, "SEAWAY-SERVICES");
        assert_eq!(bytes.len(), 8 + 20);
        assert_eq!(find(&bytes, 2).and_then(text), Some("SEAWAY-SERVICES"));
        assert_eq!(find(&bytes, 3), None);
        assert_eq!(attributes(&bytes).count(), 2);
    }

    #[test]
    fn what_is_damaged_is_told() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, "nat");
        for length in 1..7 {
            let all: Vec<_> = attributes(&bytes[..length]).collect();
            assert_eq!(all, [None], "{length}");
        }
        assert_eq!(attributes(&[3, 0, 1, 0]).last(), Some(None));
        assert_eq!(
            (text(b"nat"), text(b"\xff\0"), number(&[0; 3])),
            (None, None, None)
        );
    }
}
