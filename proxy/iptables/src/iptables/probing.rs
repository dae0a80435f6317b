//! What the kernel lacks.

use std::collections::BTreeSet;

use seaway_proxy_core::desired::Family;
use tracing::{debug, error, info};

use super::Iptables;
use crate::command;
use crate::lacking::{self, Module};
use crate::rendered::Rendered;

impl Iptables {
    /// Whether a part of the kernel is missing without which `want` cannot be written.
    pub(super) async fn find_lacking(&mut self, want: &Rendered) {
        let suspects: BTreeSet<Module> = self
            .families
            .iter()
            .flat_map(|&family| lacking::suspects(want.family(family)))
            .collect();
        // If nothing can be written, that is not for lack of a module.
        if suspects.is_empty() || !self.takes(lacking::control()).await {
            return;
        }
        for module in suspects {
            let there = self.takes(module.probe()).await;
            // Nor if the next is not taken either: whatever it was may have come in between.
            if !there && !self.takes(lacking::control()).await {
                return;
            }
            if self.lacking.found(module, there, self.config.module_retry) {
                let module = module.name();
                error!(
                    module,
                    "The kernel lacks a module, Services that need it are left out"
                );
            }
        }
    }

    /// What was missing may have been loaded.
    pub(super) async fn look_for_lacking(&mut self) {
        for module in self.lacking.overdue() {
            let there = self.takes(module.probe()).await;
            if self.lacking.found(module, there, self.config.module_retry) {
                let module = module.name();
                info!(module, "The kernel has a module that it lacked");
                self.watch.alarm();
            }
        }
    }

    /// Whether a probe's rule is accepted.
    pub(super) async fn takes(&mut self, probe: [String; 2]) -> bool {
        self.watch.before_write(false);
        let there = self.try_out(probe).await;
        let transactions = if there { 2 } else { 0 };
        self.watch.after_write(transactions, None).await;
        there
    }

    pub(super) async fn try_out(&self, [write, remove]: [String; 2]) -> bool {
        let family = Family::V4;
        let program = self.flavour.commands(&self.config).restore(family);
        let run = async |text: &str| {
            let args = ["--noflush", "--wait=5"];
            command::run(program, &args, text, self.config.timeout).await
        };
        match run(&write).await {
            Ok(_) => run(&remove).await.is_ok(),
            Err(error) => {
                debug!(%error, write, "A probe was refused");
                false
            }
        }
    }
}
