//! Our chains whose names this version does not have.

use super::{
    ADDRESSES, FORWARD, HAIRPIN, HEALTH, INVALID, LOCALHOST, MARK_OUTSIDE, MASQUERADE, NODE_PORTS,
    OWN_PREFIXES, PORTS, POSTROUTING, SERVICES, TREE_PREFIXES, Table, Tables, is_ours,
};

/// All names of chains that do not depend on Services.
const NAMES: [&str; 12] = [
    ADDRESSES,
    FORWARD,
    HAIRPIN,
    HEALTH,
    INVALID,
    LOCALHOST,
    MARK_OUTSIDE,
    MASQUERADE,
    NODE_PORTS,
    PORTS,
    POSTROUTING,
    SERVICES,
];

/// A chain that another version has made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stranger {
    pub(crate) table: &'static str,
    pub(crate) chain: String,
}

pub(super) fn is_stranger(chain: &str) -> bool {
    let mut prefixes = OWN_PREFIXES.iter().chain(&TREE_PREFIXES);
    is_ours(chain) && !NAMES.contains(&chain) && !prefixes.any(|prefix| chain.starts_with(prefix))
}

impl Tables {
    /// What another version has made in these tables.
    pub(crate) fn strangers(&self) -> Vec<Stranger> {
        let of = |(table, content): (&'static str, &Table)| {
            let chains = content.chains.keys().filter(|chain| is_stranger(chain));
            let stranger = |chain: &String| Stranger {
                table,
                chain: chain.clone(),
            };
            chains.map(stranger).collect::<Vec<_>>()
        };
        let tables = [("filter", &self.filter), ("nat", &self.nat)];
        tables.into_iter().flat_map(of).collect()
    }

    /// Forgets such a chain, unless it has rules.
    pub(crate) fn leave_out(&mut self, Stranger { table, chain }: &Stranger) {
        let table = match *table {
            "nat" => &mut self.nat,
            _ => &mut self.filter,
        };
        if table
            .chains
            .get(chain)
            .is_some_and(|body| body.rules() == 0)
        {
            table.chains.remove(chain);
        }
    }
}

/// Input for `iptables-restore --noflush` that deletes those of one table; they have no rules
/// by now.
pub(crate) fn deletion(table: &str, strangers: &[Stranger]) -> String {
    let lines = strangers
        .iter()
        .map(|stranger| format!("-X {}\n", stranger.chain));
    format!("*{table}\n{}COMMIT\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_has_made_is_emptied_with_ours_and_deleted_after_it() {
        let mut have = Tables::default();
        have.nat.push("SEAWAY-OLD", format_args!("-j RETURN"));
        have.nat.add_chain("SEAWAY-SVC-0");
        have.filter.add_chain("SEAWAY-ACCEPT");
        let want = Tables::default();
        let all = have.transactions_to(&want, usize::MAX);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            all[0].to_string(),
            "*filter\n:SEAWAY-ACCEPT - [0:0]\nCOMMIT\n\
             *nat\n:SEAWAY-OLD - [0:0]\n:SEAWAY-SVC-0 - [0:0]\n-X SEAWAY-SVC-0\nCOMMIT\n"
        );
        let strangers = have.strangers();
        let [accept, old] = strangers.as_slice() else {
            panic!("{strangers:?}");
        };
        assert_eq!((accept.table, old.table), ("filter", "nat"));
        let text = deletion("nat", std::slice::from_ref(old));
        assert_eq!(text, "*nat\n-X SEAWAY-OLD\nCOMMIT\n");
        for stranger in [accept, old] {
            have.leave_out(stranger);
        }
        let left: Vec<_> = have.nat.chains.keys().collect();
        assert_eq!(
            left,
            ["SEAWAY-OLD", "SEAWAY-SVC-0"],
            "the former has a rule"
        );
        assert!(have.filter.chains.is_empty());
    }
}
