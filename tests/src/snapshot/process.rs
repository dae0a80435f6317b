//! The programs of nodes that run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::is_foreign;

/// Programs of a node, as `/proc/PID/comm` shows them (15 bytes).
const PROGRAMS: [&str; 7] = [
    "containerd",
    "containerd-shim",
    "pause",
    "runc",
    "seaway-agent",
    "seaway-cni",
    "seaway-proxy",
];

/// The node programs that run, but for those of another running test: in its cgroup, or
/// started by it. What a test has left behind has no living starter.
pub(super) fn programs() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let entries = Path::new("/proc").read_dir().into_iter().flatten();
    for entry in entries.flatten() {
        let Ok(comm) = std::fs::read_to_string(entry.path().join("comm")) else {
            continue;
        };
        let comm = comm.trim();
        let starts = |program: &&str| comm.starts_with(&program[..program.len().min(15)]);
        if !PROGRAMS.iter().any(starts) {
            continue;
        }
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if !groups.split(['/', '\n']).any(is_foreign) && !started_by_another_test(&entry.path()) {
            found.insert(format!("{} {comm}", entry.file_name().display()));
        }
    }
    found
}

/// Whether a forebear is a program in a `deps` folder, where cargo puts tests, but not this one.
fn started_by_another_test(process: &Path) -> bool {
    let this = PathBuf::from(format!("/proc/{}", std::process::id()));
    let mut process = process.to_owned();
    while let Some(parent) = parent(&process) {
        let program = parent.join("exe").read_link().unwrap_or_default();
        if program.parent().is_some_and(|dir| dir.ends_with("deps")) {
            return parent != this;
        }
        process = parent;
    }
    false
}

/// None for process 1, and for one that has ended.
fn parent(process: &Path) -> Option<PathBuf> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let pid: u32 = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()?;
    (pid != 0).then(|| PathBuf::from(format!("/proc/{pid}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_own_children() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let path = PathBuf::from(format!("/proc/{}", child.id()));
        let (up, foreign) = (parent(&path), started_by_another_test(&path));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(up, Some(format!("/proc/{}", std::process::id()).into()));
        assert!(!foreign);
        assert_eq!(parent(Path::new("/proc/1")), None);
    }
}
