//! Pods that the source does not show, by what they have left behind.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use tracing::{info, warn};

use super::{Desired, Manager};
use crate::pods::chain;
use crate::pods::log_dirs::LogOwner;
use crate::pods::relist::Trace;

impl Manager {
    /// Gives what the runtime or the disk has of pods that the source does not show
    /// a worker that ends them.
    pub(super) fn adopt_orphans(&mut self) {
        if !self.synced || !self.traced {
            return;
        }
        let mut orphans: BTreeMap<String, Trace> = self
            .traces
            .iter()
            .filter(|(uid, _)| !self.handles.contains_key(*uid) && !self.finished.contains(*uid))
            .map(|(uid, trace)| (uid.clone(), trace.clone()))
            .collect();
        match self.shared.volumes.list_uids() {
            Ok(uids) => {
                let left = uids
                    .into_iter()
                    .filter(|uid| !self.handles.contains_key(uid));
                left.filter(|uid| !self.finished.contains(uid))
                    .for_each(|uid| {
                        orphans.entry(uid).or_default();
                    });
            }
            Err(error) => warn!(error = %chain(&error), "Pod directories cannot be listed"),
        }
        self.add_log_owners(&mut orphans);
        for (uid, trace) in orphans {
            info!(pod = %format!("{}/{}", trace.namespace, trace.name), uid, "Orphan is ended");
            self.spawn(
                Desired {
                    pod: orphan(uid, trace),
                    gone: true,
                },
                None,
            );
        }
    }

    /// Logs outlast everything else of a pod that has ended; and of a pod that only has
    /// a directory they tell the name.
    fn add_log_owners(&self, orphans: &mut BTreeMap<String, Trace>) {
        let owners = match self.shared.log_dirs.owners() {
            Ok(owners) => owners,
            Err(error) => {
                warn!(%error, "Records of log directories cannot be listed");
                return;
            }
        };
        for LogOwner {
            namespace,
            name,
            uid,
        } in owners
        {
            if self.handles.contains_key(&uid) || self.finished.contains(&uid) {
                continue;
            }
            let trace = orphans.entry(uid).or_default();
            if trace.name.is_empty() {
                (trace.namespace, trace.name) = (namespace, name);
            }
        }
    }
}

/// A pod of which only its traces are left.
fn orphan(uid: String, trace: Trace) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid);
    pod.metadata.name = Some(trace.name);
    pod.metadata.namespace = Some(trace.namespace);
    pod.spec = Some(PodSpec {
        termination_grace_period_seconds: Some(trace.grace.unwrap_or(30)),
        ..PodSpec::default()
    });
    pod
}
