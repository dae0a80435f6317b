//! Which pod traffic gets the node's address as its source.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_netlink::Family;

use crate::ruleset::{Action, Chain, Hook, Match, Rule, Ruleset, sign};

/// Base chain: which sources are ours.
pub(crate) const EGRESS: &str = "egress";
/// Which destinations are spared, then the masquerade.
pub(crate) const EGRESS_MASQUERADE: &str = "egress-masquerade";

/// The chains of this feature, one that is jumped to before the one that jumps.
pub(crate) const CHAINS: [&str; 2] = [EGRESS_MASQUERADE, EGRESS];

/// Masquerade of what pods send to anything outside the cluster.
///
/// Both families may be mixed; each is written to the table of its family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Masquerade {
    /// Sources: this node's pods.
    pub pod_cidrs: Vec<IpNetwork>,
    /// Destinations that see the pod's own address, such as all pods of the
    /// cluster. The pod CIDRs themselves and multicast always belong to it.
    pub non_masquerade_cidrs: Vec<IpNetwork>,
}

impl Masquerade {
    /// What the table of one family shall hold; `None` when no pod CIDR is of
    /// that family. The order of the input does not matter.
    pub(crate) fn ruleset(&self, family: Family) -> Option<Ruleset> {
        let sources = of_family(self.pod_cidrs.iter().copied(), family);
        if sources.is_empty() {
            return None;
        }
        let spared = self
            .pod_cidrs
            .iter()
            .chain(&self.non_masquerade_cidrs)
            .copied();
        let mut spared = of_family(spared, family);
        spared.insert(multicast(family));

        let jumps = sources.into_iter().map(|network| {
            let matches = vec![Match::Source(network)];
            Rule::new(matches, Action::Jump(EGRESS_MASQUERADE))
        });
        let mut verdicts: Vec<_> = spared
            .into_iter()
            .map(|n| Rule::new(vec![Match::Destination(n)], Action::Return))
            .collect();
        verdicts.push(Rule::new(Vec::new(), Action::Masquerade));

        let mut chains = vec![
            Chain {
                name: EGRESS_MASQUERADE,
                hook: None,
                rules: verdicts,
            },
            Chain {
                name: EGRESS,
                hook: Some(Hook::SourceNat),
                rules: jumps.collect(),
            },
        ];
        sign("masquerade", &mut chains);
        Some(Ruleset {
            family,
            sets: Vec::new(),
            chains,
        })
    }
}

fn of_family(networks: impl Iterator<Item = IpNetwork>, family: Family) -> BTreeSet<IpNetwork> {
    networks
        .filter(|network| Family::of(network.ip()) == family)
        .map(|network| {
            IpNetwork::new(network.network(), network.prefix())
                .expect("the prefix length was valid before")
        })
        .collect()
}

/// RFC 5771 and RFC 4291 section 2.7.
fn multicast(family: Family) -> IpNetwork {
    let (address, prefix) = match family {
        Family::V4 => (IpAddr::from([224, 0, 0, 0]), 4),
        Family::V6 => (IpAddr::from([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8),
    };
    IpNetwork::new(address, prefix).expect("a constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> Vec<IpNetwork> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn text(pods: &[&str], spared: &[&str], family: Family) -> Option<String> {
        let masquerade = Masquerade {
            pod_cidrs: nets(pods),
            non_masquerade_cidrs: nets(spared),
        };
        masquerade
            .ruleset(family)
            .map(|ruleset| ruleset.to_string())
    }

    #[test]
    fn golden() {
        let got = text(
            &["10.244.1.0/24", "fd00::/64"],
            &["10.244.0.0/16"],
            Family::V4,
        )
        .unwrap();
        let want = "\
table ip seaway {
	chain egress-masquerade {
		ip daddr 10.244.0.0/16 return comment \"masquerade HASH 1/4\"
		ip daddr 10.244.1.0/24 return comment \"masquerade HASH 2/4\"
		ip daddr 224.0.0.0/4 return comment \"masquerade HASH 3/4\"
		masquerade fully-random comment \"masquerade HASH 4/4\"
	}
	chain egress {
		type nat hook postrouting priority 100; policy accept;
		ip saddr 10.244.1.0/24 jump egress-masquerade comment \"masquerade HASH 1/1\"
	}
}
";
        let hash = got
            .split("masquerade ")
            .nth(2)
            .unwrap()
            .split(' ')
            .next()
            .unwrap();
        assert_eq!(got.replace(hash, "HASH"), want);
    }

    #[test]
    fn order_repetition_and_host_bits_do_not_matter() {
        let a = text(&["10.1.0.0/24", "10.2.0.0/24"], &["10.0.0.0/8"], Family::V4);
        let b = text(
            &["10.2.0.7/24", "10.1.0.0/24", "10.1.0.0/24"],
            &["10.0.0.0/8"],
            Family::V4,
        );
        assert_eq!(a, b);
    }

    #[test]
    fn every_difference_changes_the_hash_of_every_rule() {
        let base = Masquerade {
            pod_cidrs: nets(&["10.1.0.0/24"]),
            non_masquerade_cidrs: nets(&["10.0.0.0/8"]),
        };
        let other = Masquerade {
            non_masquerade_cidrs: nets(&["10.0.0.0/9"]),
            ..base.clone()
        };
        let marks = |m: &Masquerade| m.ruleset(Family::V4).unwrap().marks();
        assert_eq!(marks(&base), marks(&base));
        assert!(
            marks(&base)
                .iter()
                .all(|mark| !marks(&other).contains(mark))
        );
    }

    #[test]
    fn a_family_without_pods_has_no_rules() {
        assert_eq!(text(&["10.1.0.0/24"], &["fd00::/8"], Family::V6), None);
        assert!(
            text(&["fd00:1::/64"], &[], Family::V6)
                .unwrap()
                .contains("ip6 daddr ff00::/8")
        );
    }
}
