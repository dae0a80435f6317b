//! What outlives the agent: the Services' addresses for ever, statuses until the next
//! boot. Without the statuses a restart would make every pod unready for a moment.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::cluster_ip::Saved;
use super::shared::Shared;

/// Where both are kept.
#[derive(Clone, Debug)]
pub(super) struct Store {
    cluster_ips: PathBuf,
    statuses: PathBuf,
}

impl Store {
    pub(super) fn new(root_dir: &Path, run_dir: &Path) -> Self {
        Self {
            cluster_ips: root_dir.join("standalone/cluster-ips.json"),
            statuses: run_dir.join("standalone/pod-statuses.json"),
        }
    }

    pub(super) fn cluster_ips(&self) -> Saved {
        read(&self.cluster_ips)
    }

    pub(super) fn statuses(&self) -> BTreeMap<String, PodStatus> {
        read(&self.statuses)
    }

    /// Writes whenever something has changed, until the state goes.
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

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("state is plain data")
}

/// Nothing, with a warning, where the file is not what we write.
fn read<T: DeserializeOwned + Default>(path: &Path) -> T {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return T::default(),
        Err(error) => {
            warn!(path = %path.display(), %error, "Could not read saved state, going on without");
            return T::default();
        }
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        warn!(path = %path.display(), %error, "Saved state is damaged, going on without");
        T::default()
    })
}

/// At once and whole, also for a reader who comes in between.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    io::Write::write_all(&mut file, text)?;
    file.persist(path)?;
    Ok(())
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
        write(&store.statuses, b"{").unwrap();
        assert!(store.statuses().is_empty());
    }
}
