//! A cgroup of a node's own in every version 1 hierarchy.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// One folder of the same name per hierarchy; none on a pure cgroup2 machine.
#[derive(Debug)]
pub(super) struct CgroupsV1(Vec<PathBuf>);

impl CgroupsV1 {
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut made = Self(Vec::new());
        for mount in mounts() {
            let path = mount.join(name);
            std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
            made.0.push(path.clone());
            inherit_cpuset(&mount, &path)?;
        }
        Ok(made)
    }
}

impl Drop for CgroupsV1 {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = crate::cgroup::remove_tree(path) {
                crate::sweep::complain(&format!("remove cgroup {}: {error}", path.display()));
            }
        }
    }
}

/// Where the version 1 hierarchies are mounted, each once.
pub(crate) fn mounts() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (target, fstype) = (fields.nth(1)?, fields.next()?);
            (fstype == "cgroup").then(|| PathBuf::from(target))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A new cpuset group allows no CPU at all until it is told.
fn inherit_cpuset(parent: &Path, child: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Ok(value) = std::fs::read(parent.join(file)) else {
            continue;
        };
        let target = child.join(file);
        std::fs::write(&target, value).with_context(|| format!("write {}", target.display()))?;
    }
    Ok(())
}
