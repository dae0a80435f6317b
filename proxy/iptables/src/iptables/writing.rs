//! Makes the kernel hold something else.

use std::collections::BTreeSet;

use seaway_proxy_core::backend::BackendError;
use seaway_proxy_core::desired::Family;
use tracing::{debug, error, info, warn};

use super::{Iptables, failure};
use crate::command::{self, CommandError};
use crate::flavour::Flavour;
use crate::rendered::{Rendered, Stranger, Table, Tables, deletion};

/// Lines of a failed transaction that are logged as an error.
const TRANSACTION_LINES: usize = 10;

/// So many chains more or less are a large write.
const LARGE: usize = 500;

impl Iptables {
    /// Writes our rules, and tells the watch which changes are ours.
    pub(super) async fn write_and_tell(
        &mut self,
        have: &Rendered,
        want: &Rendered,
    ) -> Result<(), BackendError> {
        let large = self.families.iter().any(|&family| {
            let (have, want) = (have.family(family), want.family(family));
            let chains = |tables: &Tables| tables.nat.chains.len();
            chains(have).abs_diff(chains(want)) > LARGE
        });
        self.watch.before_write(large);
        let written = self.write(self.flavour, have, want).await;
        self.stuck.chains.extend(written.stuck);
        let known = written.failed.is_none();
        let grown = known.then(|| grown(self.families, have, want));
        self.watch
            .after_write(written.transactions, grown.as_deref())
            .await;
        for &family in self.families {
            let failed = written.failed.as_ref();
            if failed.is_none_or(|failed| failed.only_in.is_some_and(|only| only != family)) {
                self.trust.written(family, want.family(family));
            }
        }
        if let Some(failed) = written.failed {
            // Who has waited for the lock in vain was refused nothing.
            if !self.waited_in_vain(&failed.error) {
                self.find_lacking(want).await;
            }
            let what = format!("write the {} rules", self.flavour);
            return Err(failure(what, failed.error).only_in(failed.only_in));
        }
        Ok(())
    }

    /// A failure in one family does not keep the other one from being written.
    pub(super) async fn write(
        &self,
        flavour: Flavour,
        have: &Rendered,
        want: &Rendered,
    ) -> Written {
        let mut done = Written::default();
        for &family in self.families {
            let (have, want) = (have.family(family), want.family(family));
            let written = self.write_family(flavour, family, have, want, &mut done);
            let written = written.await;
            if let Err(error) = written {
                let only_in = done.failed.is_none().then_some(family);
                let error = done.failed.map_or(error, |first| first.error);
                done.failed = Some(WriteError { only_in, error });
            }
        }
        if done.failed.is_none() {
            self.told.over(flavour);
        }
        done
    }

    async fn write_family(
        &self,
        flavour: Flavour,
        family: Family,
        have: &Tables,
        want: &Tables,
        done: &mut Written,
    ) -> Result<(), CommandError> {
        for transaction in have.transactions_to(want, rules_at_once(flavour)) {
            let transaction = transaction.to_string();
            self.restore(flavour, family, &transaction).await?;
            let commits = transaction.lines().filter(|line| *line == "COMMIT");
            done.transactions += u32::try_from(commits.count()).unwrap_or(u32::MAX);
        }
        self.delete_strangers(flavour, family, &have.strangers(), done)
            .await;
        Ok(())
    }

    /// They have no rules any more, so one that cannot be deleted harms nobody: something may
    /// lead to it that only nft can show.
    async fn delete_strangers(
        &self,
        flavour: Flavour,
        family: Family,
        strangers: &[Stranger],
        done: &mut Written,
    ) {
        let mut gone: Vec<&Stranger> = Vec::new();
        let mut parts: Vec<&[Stranger]> = strangers
            .chunk_by(|one, next| one.table == next.table)
            .collect();
        while let Some(part) = parts.pop() {
            match self.delete(flavour, family, part, done).await {
                Ok(()) => gone.extend(part),
                Err(error) if error.is_refusal() && part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(error) => tell_stuck(flavour, family, part, &error, done),
            }
        }
        if !gone.is_empty() {
            let first = command::first_names(gone.iter().map(|gone| gone.chain.as_str()));
            info!(%flavour, %family, chains = gone.len(), first, "Removed chains of another version");
        }
    }

    async fn delete(
        &self,
        flavour: Flavour,
        family: Family,
        of_table: &[Stranger],
        done: &mut Written,
    ) -> Result<(), CommandError> {
        let table = of_table.first().map_or("nat", |first| first.table);
        let transaction = deletion(table, of_table);
        self.try_restore(flavour, family, &transaction).await?;
        done.transactions += 1;
        Ok(())
    }

    async fn restore(
        &self,
        flavour: Flavour,
        family: Family,
        transaction: &str,
    ) -> Result<(), CommandError> {
        let result = self.try_restore(flavour, family, transaction).await;
        if let Err(error) = &result {
            if self.told.is_news(flavour, family, error) {
                // Restore names a line number at best, so the lines are needed.
                let first = command::first_lines(transaction, TRANSACTION_LINES, "\n");
                error!(%flavour, %family, lines = transaction.lines().count(), first, "Transaction failed");
            }
            debug!(%flavour, %family, transaction, "Failed transaction");
        }
        result
    }

    async fn try_restore(
        &self,
        flavour: Flavour,
        family: Family,
        transaction: &str,
    ) -> Result<(), CommandError> {
        let program = flavour.commands(&self.config).restore(family);
        // The lock's wait ends well before our own patience does.
        let wait = format!("--wait={}", (self.config.timeout.as_secs() / 4).max(1));
        let args = ["--noflush", wait.as_str()];
        let run = command::run(program, &args, transaction, self.config.timeout);
        run.await.map(|_| ())
    }
}

/// A failure that passes is none to remember: the next reading finds them again.
fn tell_stuck(
    flavour: Flavour,
    family: Family,
    part: &[Stranger],
    error: &CommandError,
    done: &mut Written,
) {
    let chain = part.first().map_or("", |first| &first.chain);
    let chains = part.len();
    warn!(%flavour, %family, chain, chains, %error, "Cannot delete chains of another version, they stay without rules");
    if error.is_refusal() {
        let stuck = part.iter().map(|one| (family, one.clone()));
        done.stuck.extend(stuck);
    }
}

/// How many rules a transaction should have. iptables-nft-restore keeps them all in memory
/// and as netlink messages, 5 KB each in all; iptables-legacy-restore keeps the whole table,
/// and reads and writes it for each transaction.
fn rules_at_once(flavour: Flavour) -> usize {
    match flavour {
        Flavour::Nft => 2048,
        Flavour::Legacy => usize::MAX,
    }
}

/// What [`Iptables::write`] has come to.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// One for each table that something was written to, also before a failure.
    transactions: u32,
    /// Chains that could not be deleted.
    stuck: BTreeSet<(Family, Stranger)>,
    pub(super) failed: Option<WriteError>,
}

/// What [`Iptables::write`] has met first.
#[derive(Debug)]
pub(super) struct WriteError {
    /// Where, if the other family has been written.
    only_in: Option<Family>,
    pub(super) error: CommandError,
}

/// By how many entries each table of each family grows, as the kernel counts them: a chain is
/// two besides its rules.
fn grown(families: &[Family], have: &Rendered, want: &Rendered) -> Vec<i64> {
    let entries = |table: &Table| {
        let rules = table.chains.values().map(|body| body.rules() + 2);
        i64::try_from(rules.sum::<usize>() + table.jumps.len()).unwrap_or(i64::MAX)
    };
    let of = |&family: &Family| {
        let (have, want) = (have.family(family), want.family(family));
        let pairs = [(&have.nat, &want.nat), (&have.filter, &want.filter)];
        pairs.map(|(have, want)| entries(want) - entries(have))
    };
    families.iter().flat_map(of).collect()
}
