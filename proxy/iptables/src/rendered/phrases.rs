//! Rules in a quarter of their length.
//!
//! Those of many Services are the same words again and again, and on a first sync all of them
//! are in memory at once.

/// What is written often, each as one byte from [`FIRST`] on. Longer ones come before those
/// that they begin with.
const PHRASES: [&str; 16] = [
    " -p tcp -m statistic --mode random --probability 0.",
    " -p udp -m statistic --mode random --probability 0.",
    " -m statistic --mode random --probability 0.",
    " -j DNAT --to-destination ",
    " -p tcp -m comment --comment \"",
    " -p udp -m comment --comment \"",
    " -m comment --comment \"",
    " -m tcp --dport ",
    " -m udp --dport ",
    " -m set --match-set SEAWAY-",
    " -j SET --add-set SEAWAY-",
    " -j MARK --set-xmark ",
    " -j SEAWAY-MARK-OUTSIDE",
    " -g SEAWAY-",
    "/32 -p tcp",
    " -j ",
];
/// Above all of ASCII.
const FIRST: u8 = 0x80;
/// What follows is as it is, to the end of its line.
const PLAIN: u8 = 0xff;

/// Appends a line, and its end.
pub(super) fn push(packed: &mut Vec<u8>, line: &str) {
    if line.is_ascii() {
        pack(packed, line);
    } else {
        packed.push(PLAIN);
        packed.extend_from_slice(line.as_bytes());
    }
    packed.push(b'\n');
}

fn pack(packed: &mut Vec<u8>, line: &str) {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let mut known = (FIRST..).zip(PHRASES);
        // All phrases begin with one of these.
        let found = matches!(first, ' ' | '/')
            .then(|| known.find(|(_, phrase)| rest.starts_with(phrase)))
            .flatten();
        let taken = if let Some((code, phrase)) = found {
            packed.push(code);
            phrase.len()
        } else {
            packed.extend_from_slice(rest.get(..1).unwrap_or_default().as_bytes());
            1
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
}

/// The lines that were appended.
pub(super) fn lines(packed: &[u8]) -> impl Iterator<Item = String> {
    let lines = packed.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| unpack(line.strip_suffix(b"\n").unwrap_or(line)))
}

fn unpack(packed: &[u8]) -> String {
    if let Some((&PLAIN, line)) = packed.split_first() {
        return String::from_utf8_lossy(line).into_owned();
    }
    let mut line = String::with_capacity(4 * packed.len());
    for byte in packed {
        let phrase = byte.checked_sub(FIRST).map(usize::from);
        match phrase.and_then(|place| PHRASES.get(place)) {
            Some(phrase) => line.push_str(phrase),
            None => line.push(char::from(*byte)),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(all: &[&str]) -> Vec<u8> {
        let mut packed = Vec::new();
        for line in all {
            push(&mut packed, line);
        }
        packed
    }

    #[test]
    fn a_usual_rule_is_a_quarter_of_its_length() {
        let rule = " -p tcp -m statistic --mode random --probability 0.10000000009 \
                    -j DNAT --to-destination 10.128.0.1:8080";
        let short = packed(&[rule]);
        assert!(4 * short.len() < "-A SEAWAY-SVC-0123456789abcdef\n".len() + rule.len());
        assert_eq!(lines(&short).collect::<Vec<_>>(), [rule]);
    }

    #[test]
    fn no_phrase_hides_a_longer_one() {
        for (place, phrase) in PHRASES.iter().enumerate() {
            let before = PHRASES.iter().take(place);
            assert_eq!(
                before.filter(|other| phrase.starts_with(**other)).count(),
                0
            );
            assert_eq!(packed(&[phrase]).len(), 2, "{phrase}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            all in prop::collection::vec(
                prop_oneof![
                    "[^\n]{0,30}",
                    prop::collection::vec(prop::sample::select(&PHRASES[..]), 0..4)
                        .prop_map(|phrases| phrases.concat()),
                ],
                0..4,
            ),
        ) {
            let mut packed = Vec::new();
            for line in &all {
                push(&mut packed, line);
            }
            prop_assert_eq!(lines(&packed).collect::<Vec<_>>(), all);
        }
    }
}
