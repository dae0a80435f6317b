//! A node's cgroups: one in cgroup2, and one of the same name in every v1 hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::Cgroup2;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The cgroups of a node; what runs in them is killed when the guard goes.
#[derive(Debug)]
pub(super) struct NodeCgroups {
    v2: Cgroup2,
    v1: Vec<PathBuf>,
}

impl NodeCgroups {
    /// Makes them, with a child `system` in cgroup2 for the node's own programs.
    pub(super) fn new(hint: &str) -> Result<Self> {
        let v2 = Cgroup2::new(hint);
        let mut cgroups = Self { v2, v1: Vec::new() };
        make(&cgroups.system())?;
        let name = cgroups.name().to_owned();
        for hierarchy in v1_hierarchies() {
            let path = hierarchy.join(&name);
            make(&path)?;
            cgroups.v1.push(path.clone());
            // An empty cpuset takes no process.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(value) = fs::read(hierarchy.join(file)) {
                    let target = path.join(file);
                    fs::write(&target, value)
                        .with_context(|| format!("write {}", target.display()))?;
                }
            }
        }
        Ok(cgroups)
    }

    /// The name below each hierarchy's root.
    pub(super) fn name(&self) -> &str {
        let name = self.v2.path().file_name().and_then(|name| name.to_str());
        name.expect("the test bed's names are plain ASCII")
    }

    /// Where the node's programs run.
    pub(super) fn system(&self) -> PathBuf {
        self.v2.path().join("system")
    }

    /// The node's root in cgroup2.
    pub(super) fn v2(&self) -> &Path {
        self.v2.path()
    }
}

impl Drop for NodeCgroups {
    fn drop(&mut self) {
        // Processes first: all of them, containers too, have inherited the cgroup2.
        remove(self.v2.path());
        for path in &self.v1 {
            remove(path);
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = crate::cgroup::remove_tree(path) {
        crate::sweep::complain(&format!("remove cgroup {}: {error}", path.display()));
    }
}

/// Removes what test processes have left in v1 hierarchies that were killed.
pub(super) fn sweep() {
    for hierarchy in v1_hierarchies() {
        for path in crate::sweep::leftovers(&hierarchy) {
            remove(&path);
        }
    }
}

/// The v1 hierarchies; none where the machine has cgroup2 alone.
fn v1_hierarchies() -> Vec<PathBuf> {
    let entries = Path::new(CGROUP_ROOT)
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        // Only v1 has this file at its root.
        .filter(|path| path.join("release_agent").exists())
        .collect()
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("make cgroup {}", path.display()))
}
