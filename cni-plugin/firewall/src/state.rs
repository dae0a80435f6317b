//! What of ours is in the kernel, cheap enough to be looked at often.

use std::collections::BTreeSet;

use seaway_netlink::Family;

use crate::attributes::Attributes;
use crate::firewall::{FAMILIES, Firewall, FirewallError, agree};
use crate::message::{GET_GENERATION, Mark, frame};
use crate::passage::Forwarding;
use crate::set::find;
use crate::{hostports, masquerade};

/// `NFTA_GEN_ID`.
const GENERATION_ID: u16 = 1;

/// What of ours the kernel held when it was looked at.
///
/// Two of them are compared; alone it does not say what should be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Families whose masquerade is whole.
    masquerade: BTreeSet<Family>,
    /// Families whose rules for hostPorts are whole.
    port_rules: BTreeSet<Family>,
    ports: BTreeSet<Port>,
    /// Where a FORWARD drops pods' packets: iptables-nft and iptables-legacy.
    dropping: BTreeSet<(Family, bool)>,
}

/// Family, map, key and data of an element.
type Port = (Family, &'static str, Vec<u8>, Vec<u8>);

/// What was there before and is not any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Rules of the masquerade.
    pub masquerade: bool,
    /// Rules or elements for hostPorts; a pod that went takes its own along.
    pub host_ports: bool,
    /// The accepts in a FORWARD that drops; it may have begun to drop just now.
    pub forward: bool,
}

impl Lost {
    /// Whether it is anything at all.
    pub fn any(self) -> bool {
        self.masquerade || self.host_ports || self.forward
    }
}

impl State {
    /// What `before` had and this has not.
    pub fn lost_since(&self, before: &Self) -> Lost {
        Lost {
            masquerade: !self.masquerade.is_superset(&before.masquerade),
            host_ports: !self.port_rules.is_superset(&before.port_rules)
                || !self.ports.is_superset(&before.ports),
            forward: !self.dropping.is_subset(&before.dropping),
        }
    }
}

impl State {
    /// The same, as if it had the masquerade of another look.
    #[must_use]
    pub fn with_masquerade_of(self, other: &Self) -> Self {
        let masquerade = other.masquerade.clone();
        Self { masquerade, ..self }
    }
}

impl Firewall {
    /// The number of nftables' last change, whoever made it: when it is as it
    /// was, everything is.
    pub fn generation(&mut self) -> Result<u32, FirewallError> {
        let attributes = Attributes::after_header(0, 0);
        let get = frame(
            GET_GENERATION,
            0,
            attributes,
            "generation show",
            Family::V4,
            "",
        );
        let replies = match self.wire.transact(std::slice::from_ref(&get)) {
            Ok(replies) => replies,
            // Without nf_tables nothing changes either.
            Err(error) if error.is_unsupported() => return Ok(0),
            Err(source) => {
                let family = Family::V4;
                return Err(FirewallError::Read { family, source });
            }
        };
        let number = replies
            .iter()
            .find_map(|reply| find(reply.payload.get(4..)?, GENERATION_ID));
        Ok(number
            .and_then(|bytes| bytes.first_chunk().copied())
            .map_or(0, u32::from_be_bytes))
    }

    /// Looks at everything of ours; writes nothing.
    pub fn state(&mut self) -> Result<State, FirewallError> {
        let mut state = State::default();
        for family in FAMILIES {
            let marks = self.marks(family, false)?;
            if is_whole(&marks, &masquerade::CHAINS) {
                state.masquerade.insert(family);
            }
            let rules = hostports::ruleset(family);
            if agree(&marks, &hostports::CHAINS, Some(&rules)) {
                state.port_rules.insert(family);
                let elements = self.host_port_elements(family)?.into_iter();
                state
                    .ports
                    .extend(elements.map(|e| (family, e.set, e.key, e.data)));
            }
            if self.forwarding(family)? == Forwarding::Dropped {
                state.dropping.insert((family, false));
            }
            if crate::legacy::forwarding(family)? == Forwarding::Dropped {
                state.dropping.insert((family, true));
            }
        }
        Ok(state)
    }
}

/// Whether the chains hold all rules of one generation, as their comments tell.
fn is_whole(marks: &[Mark], chains: &[&str]) -> bool {
    let mut generations = BTreeSet::new();
    for chain in chains {
        let comments: Vec<&str> = marks
            .iter()
            .filter(|(name, _)| name == chain)
            .map(|(_, comment)| comment.as_str())
            .collect();
        for (place, comment) in comments.iter().enumerate() {
            let Some((generation, at)) = comment.rsplit_once(' ') else {
                return false;
            };
            if at != format!("{}/{}", place + 1, comments.len()) {
                return false;
            }
            generations.insert(generation);
        }
        if comments.is_empty() {
            return false;
        }
    }
    generations.len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(list: &[(&str, &str)]) -> Vec<Mark> {
        list.iter()
            .map(|(chain, comment)| ((*chain).to_owned(), (*comment).to_owned()))
            .collect()
    }

    #[test]
    fn rules_are_whole_when_all_of_one_generation_are_there() {
        let whole = [("a", "m x 1/2"), ("a", "m x 2/2"), ("b", "m x 1/1")];
        assert!(is_whole(&marks(&whole), &["a", "b"]));
        for missing in 0..3 {
            let mut rest = whole.to_vec();
            rest.remove(missing);
            assert!(!is_whole(&marks(&rest), &["a", "b"]), "{missing}");
        }
        for altered in [
            [("a", "m x 2/2"), ("a", "m x 1/2"), ("b", "m x 1/1")],
            [("a", "m x 1/2"), ("a", "m x 2/2"), ("b", "m y 1/1")],
            [("a", "m x 1/2"), ("a", ""), ("b", "m x 1/1")],
        ] {
            assert!(!is_whole(&marks(&altered), &["a", "b"]));
        }
    }

    #[test]
    fn only_what_was_there_can_be_lost() {
        let port = (Family::V4, "hostports-any", vec![1], vec![2]);
        let full = State {
            masquerade: [Family::V4].into(),
            port_rules: [Family::V4].into(),
            ports: [port].into(),
            dropping: BTreeSet::new(),
        };
        let empty = State::default();
        assert!(!full.lost_since(&full).any() && !full.lost_since(&empty).any());
        let lost = empty.lost_since(&full);
        assert!(lost.masquerade && lost.host_ports && !lost.forward);
        let dropping = State {
            dropping: [(Family::V4, true)].into(),
            ..full.clone()
        };
        assert!(dropping.lost_since(&full).forward && !full.lost_since(&dropping).any());
    }
}
