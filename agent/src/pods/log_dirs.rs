//! The directories of pods' logs, and a record of which of them are ours.
//!
//! `--pod-log-dir` is shared: other agents may log below it, and people look there. For
//! every directory that this agent makes there is an empty file of the same name below
//! its own root, written before and removed after it. So whatever happens in between,
//! the logs of a pod that went away while no agent ran are found, and nobody else's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use seaway_agent_core::sandbox;

/// A pod of which logs are left, by the name of their directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogOwner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Clone, Debug)]
pub(super) struct LogDirs {
    root: PathBuf,
    records: PathBuf,
}

impl LogDirs {
    pub(super) fn new(root: &Path, records: &Path) -> Self {
        Self {
            root: root.to_owned(),
            records: records.to_owned(),
        }
    }

    /// Where the logs of `pod` go.
    pub(super) fn path(&self, pod: &Pod) -> PathBuf {
        sandbox::log_directory(&self.root.to_string_lossy(), pod).into()
    }

    /// Makes the directory of `pod`.
    pub(super) fn create(&self, pod: &Pod) -> io::Result<PathBuf> {
        let dir = self.path(pod);
        fs::create_dir_all(&self.records)?;
        fs::write(self.record(&dir), "")?;
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Removes the directory of `pod` with its logs; absent is fine.
    pub(super) fn remove(&self, pod: &Pod) -> io::Result<()> {
        let dir = self.path(pod);
        absent_is_fine(fs::remove_dir_all(&dir))?;
        absent_is_fine(fs::remove_file(self.record(&dir)))
    }

    /// Whose logs are recorded, this boot's and earlier ones'.
    pub(super) fn owners(&self) -> io::Result<Vec<LogOwner>> {
        let entries = match fs::read_dir(&self.records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut owners = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            // What is not of this form was not written here.
            owners.extend(name.to_str().and_then(owner));
        }
        Ok(owners)
    }

    fn record(&self, dir: &Path) -> PathBuf {
        self.records.join(dir.file_name().unwrap_or_default())
    }
}

/// `NAMESPACE_NAME_UID`; none of them may hold an underscore.
fn owner(dir: &str) -> Option<LogOwner> {
    let mut parts = dir.split('_').map(str::to_owned);
    let owner = LogOwner {
        namespace: parts.next()?,
        name: parts.next()?,
        uid: parts.next().filter(|uid| !uid.is_empty())?,
    };
    parts.next().is_none().then_some(owner)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("shop".into());
        pod.metadata.name = Some("web-0".into());
        pod.metadata.uid = Some(uid.into());
        pod
    }

    #[test]
    fn only_our_own_directories_are_known_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, records) = (dir.path().join("log"), dir.path().join("records"));
        let logs = LogDirs::new(&root, &records);
        assert_eq!(logs.owners().unwrap(), []);
        let foreign = root.join("shop_other_u9");
        fs::create_dir_all(&foreign).unwrap();
        let made = logs.create(&pod("u-1")).unwrap();
        fs::write(made.join("0.log"), "words").unwrap();

        // Another agent process, later.
        let logs = LogDirs::new(&root, &records);
        let left = LogOwner {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: "u-1".into(),
        };
        assert_eq!(logs.owners().unwrap(), [left]);
        logs.remove(&pod("u-1")).unwrap();
        logs.remove(&pod("u-1")).unwrap();
        assert!(!made.exists() && foreign.exists());
        assert_eq!(logs.owners().unwrap(), []);
    }

    #[test]
    fn a_record_whose_directory_was_never_made_goes_too() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDirs::new(&dir.path().join("log"), dir.path());
        fs::write(dir.path().join("shop_web-0_u-1"), "").unwrap();
        fs::write(dir.path().join("something else"), "").unwrap();
        assert_eq!(logs.owners().unwrap().len(), 1);
        logs.remove(&pod("u-1")).unwrap();
        assert_eq!(logs.owners().unwrap(), []);
        assert!(dir.path().join("something else").exists());
    }
}
