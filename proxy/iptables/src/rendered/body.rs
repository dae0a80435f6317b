//! The rules of one chain, told by a digest, so that not all of their text has to be kept.

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};

use super::phrases;

/// Half of a SHA-256: two chains that are told apart by it have never met.
type Sum = [u8; 16];

/// All rules of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    /// Of all rules, each with the sum of those before it.
    sum: Sum,
    count: u32,
    /// The rules behind `-A CHAIN`, packed; empty when they were [forgotten](Self::forget).
    packed: Vec<u8>,
}

impl Body {
    /// Appends a rule, given as all that comes behind `-A CHAIN`.
    pub(crate) fn push(&mut self, rule: &str) {
        if self.is_whole() {
            phrases::push(&mut self.packed, rule);
        }
        self.push_forgotten(rule);
    }

    /// The same without its words.
    pub(crate) fn push_forgotten(&mut self, rule: &str) {
        let digest = Sha256::new().chain_update(self.sum).chain_update(rule);
        let digest = digest.finalize();
        self.sum.copy_from_slice(&digest[..size_of::<Sum>()]);
        self.count += 1;
    }

    /// Forgets what the rules are in words, and still knows whether others are the same.
    pub(crate) fn forget(&mut self) {
        self.packed = Vec::new();
    }

    /// Gives back what was reserved for more: nearly half of it.
    pub(crate) fn shrink(&mut self) {
        self.packed.shrink_to_fit();
    }

    /// Whether the words are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.count == 0 || !self.packed.is_empty()
    }

    /// All rules, each a whole line without its end; none when they were forgotten.
    pub(crate) fn lines(&self, chain: &str) -> impl Iterator<Item = String> {
        phrases::lines(&self.packed).map(move |rule| format!("-A {chain}{rule}"))
    }

    /// How many rules there are.
    pub(crate) fn rules(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (self.sum, self.count) == (other.sum, other.count)
    }
}

impl Eq for Body {}

impl Hash for Body {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.sum, self.count).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(rules: &[&str]) -> Body {
        let mut body = Body::default();
        for rule in rules {
            body.push(rule);
        }
        body
    }

    #[test]
    fn bodies_are_equal_when_all_of_their_rules_are() {
        let two = body(&[" -j b", " -j c"]);
        assert_eq!(two, body(&[" -j b", " -j c"]));
        for other in [
            body(&[]),
            body(&[" -j b"]),
            body(&[" -j c", " -j b"]),
            body(&[" -j b", " -j c", " -j c"]),
        ] {
            assert_ne!(two, other);
        }
        assert_eq!((two.rules(), body(&[]).rules()), (2, 0));
    }

    #[test]
    fn what_is_forgotten_is_known_again_and_goes_on() {
        let rules = [" -j b", " -j c", " -j d"];
        let mut forgetful = body(&rules[..2]);
        forgetful.forget();
        assert_eq!(forgetful, body(&rules[..2]));
        forgetful.push(rules[2]);
        assert_eq!(forgetful, body(&rules));
        assert!(!forgetful.is_whole() && body(&rules).is_whole() && body(&[]).is_whole());
        assert_eq!(forgetful.lines("a").count(), 0);
        let lines: Vec<_> = body(&rules).lines("a").collect();
        assert_eq!(lines, ["-A a -j b", "-A a -j c", "-A a -j d"]);
    }
}
