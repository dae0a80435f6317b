//! What outlives the agent: the Services' addresses for ever; until the next boot what
//! is in force of the files, and which pods are there with which status. With these the
//! next run goes on as if there had been no pause, whatever the directory holds by then.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::cluster_ip::Saved;
use super::files::File;
use super::shared::Shared;

/// Another one after each boot (`random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What an earlier run of the agent left.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Restored {
    pub(super) files: BTreeMap<String, File>,
    pub(super) generations: BTreeMap<String, u64>,
    /// By UID.
    pub(super) pods: BTreeMap<String, Pod>,
}

/// The same, to be written.
#[derive(Debug, Serialize)]
pub(super) struct Kept<'a> {
    pub(super) files: BTreeMap<&'a str, &'a File>,
    pub(super) generations: &'a BTreeMap<String, u64>,
    pub(super) pods: &'a BTreeMap<String, Pod>,
}

/// With the boot that it belongs to.
#[derive(Deserialize, Serialize)]
struct OfBoot<T> {
    boot: String,
    state: T,
}

/// Where all is kept.
#[derive(Clone, Debug)]
pub(super) struct Store {
    cluster_ips: PathBuf,
    state: PathBuf,
    statuses: PathBuf,
}

impl Store {
    pub(super) fn new(root_dir: &Path, run_dir: &Path) -> Self {
        Self {
            cluster_ips: root_dir.join("standalone/cluster-ips.json"),
            state: run_dir.join("standalone/state.json"),
            statuses: run_dir.join("standalone/pod-statuses.json"),
        }
    }

    pub(super) fn cluster_ips(&self) -> Saved {
        read(&self.cluster_ips).unwrap_or_default()
    }

    /// Nothing after a boot: then nothing runs of what was there.
    pub(super) fn restored(&self) -> Restored {
        let kept: Option<OfBoot<Restored>> = read(&self.state);
        let kept = kept.filter(|kept| kept.boot == boot_id());
        let mut restored = kept.map(|kept| kept.state).unwrap_or_default();
        let mut statuses: BTreeMap<String, PodStatus> = read(&self.statuses).unwrap_or_default();
        for (uid, pod) in &mut restored.pods {
            if let Some(status) = statuses.remove(uid) {
                pod.status = Some(status);
            }
            forget_end(pod);
        }
        restored
    }

    /// At once: nobody may act on what the next run would not know.
    pub(super) fn keep_state(&self, state: Kept<'_>) {
        let boot = boot_id();
        let text = json(&OfBoot { boot, state });
        if let Err(error) = write(&self.state, &text) {
            warn!(path = %self.state.display(), %error, "Could not save state");
        }
    }

    /// Writes the rest whenever something has changed, until the state goes.
    pub(super) async fn keep(self, shared: Arc<Shared>) {
        let mut changes = shared.subscribe();
        let mut written = [Vec::new(), Vec::new()];
        while changes.changed().await.is_ok() {
            let wanted =
                shared.look(|state| [json(&state.allocator().saved()), json(&state.statuses())]);
            let paths = [&self.cluster_ips, &self.statuses];
            for ((path, wanted), written) in paths.into_iter().zip(wanted).zip(&mut written) {
                if wanted == *written {
                    continue;
                }
                match write(path, &wanted) {
                    Ok(()) => *written = wanted,
                    Err(error) => warn!(path = %path.display(), %error, "Could not save state"),
                }
            }
        }
    }
}

/// An end that the node decided is decided anew, as kubelet does with static pods: what
/// was refused or cut short may run now. Only containers that have ended for good stay
/// ended, since nothing of them may be left to see.
fn forget_end(pod: &mut Pod) {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    let runs_again = policy == Some("Always");
    let Some(status) = &mut pod.status else {
        return;
    };
    let has_ended = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    if has_ended && (runs_again || status.reason.is_some()) {
        status.phase = Some("Pending".to_owned());
        (status.reason, status.message) = (None, None);
    }
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("state is plain data")
}

/// Nothing, with a warning, where the file is not what we write.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(path = %path.display(), %error, "Could not read saved state, going on without");
            return None;
        }
    };
    serde_json::from_slice(&text)
        .inspect_err(|error| {
            warn!(path = %path.display(), %error, "Saved state is damaged, going on without");
        })
        .ok()
}

/// At once and whole, also for a reader who comes in between, and for one who comes after
/// the power was lost: a rename alone may reach the disk before the text.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    io::Write::write_all(&mut file, text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path(), directory.path());
        assert!(store.cluster_ips().services.is_empty());
        let saved = Saved {
            services: BTreeMap::from([("a/b".into(), [10, 0, 0, 9].into())]),
        };
        write(&store.cluster_ips, &json(&saved)).unwrap();
        assert_eq!(store.cluster_ips().services, saved.services);
        write(&store.state, b"{").unwrap();
        assert!(store.restored().pods.is_empty());
    }

    fn pod(policy: &str, phase: &str, reason: Option<&str>) -> Pod {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"restartPolicy": policy, "containers": []},
            "status": {"phase": phase, "reason": reason, "podIP": "10.244.0.5"},
        }))
        .unwrap()
    }

    #[test]
    fn a_saved_end_stops_no_pod_that_has_to_run() {
        let rows = [
            (pod("Always", "Failed", None), "Pending"),
            (pod("Always", "Succeeded", None), "Pending"),
            (pod("Always", "Running", None), "Running"),
            (pod("Never", "Succeeded", None), "Succeeded"),
            (pod("OnFailure", "Failed", None), "Failed"),
            (pod("Never", "Failed", Some("OutOfcpu")), "Pending"),
        ];
        for (saved, want) in rows {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::new(directory.path(), directory.path());
            store.keep_state(Kept {
                files: BTreeMap::new(),
                generations: &BTreeMap::new(),
                pods: &BTreeMap::from([("u".into(), saved.clone())]),
            });
            let status = store.restored().pods["u"].status.clone().unwrap();
            assert_eq!(status.phase.as_deref(), Some(want), "{saved:?}");
            assert_eq!(status.reason, None);
            assert_eq!(status.pod_ip.as_deref(), Some("10.244.0.5"));
        }
    }

    #[test]
    fn what_was_kept_before_a_boot_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path(), directory.path());
        store.keep_state(Kept {
            files: BTreeMap::new(),
            generations: &BTreeMap::from([("a/b".into(), 1)]),
            pods: &BTreeMap::new(),
        });
        assert_eq!(store.restored().generations.len(), 1);
        let text = fs::read_to_string(&store.state).unwrap();
        let other = text.replace(boot_id().trim(), "another");
        write(&store.state, other.as_bytes()).unwrap();
        assert!(store.restored().generations.is_empty());
    }
}
