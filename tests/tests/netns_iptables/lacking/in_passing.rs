//! Failures that pass are no lack of anything.

use std::fs;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::sync_once;

use super::{NO_RULE, NO_SET, one_sticky, sets};
use crate::node::{Node, block_on, config, each_flavour};

#[test]
fn a_set_that_cannot_be_created_after_others_costs_no_affinity() {
    each_flavour(|flavour| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(flavour);
        config.ipset = NO_SET.of("probe", dir.path(), &config.ipset);
        for commands in [&mut config.nft, &mut config.legacy] {
            commands.restore = NO_RULE.of("-j DNAT ", dir.path(), &commands.restore);
        }
        let mut n = Node::new(config);
        n.sync(&one_sticky(1));
        fs::write(dir.path().join("lacks"), "").unwrap();
        let desired = one_sticky(2);
        let backend = &mut n.backend;
        let refused = || block_on(sync_once(backend, None, &desired));
        n.host.enter(refused).expect_err("nothing is translated");
        assert_eq!(n.backend.unsupported(&desired), []);
        fs::remove_file(dir.path().join("lacks")).unwrap();
        assert!(n.sync(&desired));
        assert_eq!(sets(&n).lines().count(), 2, "{}", sets(&n));
    });
}
