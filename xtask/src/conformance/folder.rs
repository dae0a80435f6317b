//! Where a run leaves its report: a folder for each choice of parts, nodes and tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::{Args, CONFORMANCE, NODES};
use crate::release;

/// How much of the digest of what was chosen tells folders apart, hexadecimal digits.
const DIGITS: usize = 8;
const TABLE: &str = "table.txt";

impl Args {
    /// The parts, and what else is not the default: how many nodes, and which tests. Regular
    /// expressions make no names of folders, so a digest stands for them; [`Self::words`] has
    /// them in full.
    pub(super) fn folder_name(&self) -> String {
        let mut parts = vec![self.label()];
        if self.nodes != NODES {
            parts.push(format!("{}nodes", self.nodes));
        }
        if self.focus != CONFORMANCE || self.skip.is_some() {
            let chosen = format!("{}\0{}", self.focus, self.skip.as_deref().unwrap_or(""));
            let digest = format!("{:x}", Sha256::digest(chosen));
            parts.push(digest.chars().take(DIGITS).collect());
        }
        parts.join("-")
    }

    /// What was chosen, as it is typed.
    pub(super) fn words(&self) -> String {
        let mut words = vec![format!("--focus '{}'", self.focus)];
        words.extend(self.skip.iter().map(|skip| format!("--skip '{skip}'")));
        words.push(format!("--nodes {} --procs {}", self.nodes, self.procs));
        words.join(" ")
    }
}

/// An empty one below `target`.
///
/// # Errors
/// When it cannot be emptied or made.
pub(super) fn empty(name: &str) -> Result<PathBuf> {
    let folder = release::target_dir().join("conformance").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// Keeps what was shown, below what was chosen.
///
/// # Errors
/// When it cannot be written.
pub(super) fn keep_table(folder: &Path, words: &str, table: &str) -> Result<()> {
    let path = folder.join(TABLE);
    let text = format!("{words}\n\n{table}");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::args;
    use super::*;

    #[test]
    fn each_choice_of_tests_has_a_folder_of_its_own() {
        assert_eq!(args("").folder_name(), "seaway-iptables-seaway");
        // How many run at once changes no result.
        assert_eq!(args("--procs 4").folder_name(), "seaway-iptables-seaway");
        let three = args("--nodes 3").folder_name();
        assert_eq!(three, "seaway-iptables-seaway-3nodes");
        let lines = [
            "",
            "--nodes 3",
            r"--focus \[sig-network\]",
            r"--focus \[sig-network\] --nodes 3",
            r"--focus \[sig-network\] --skip \[Serial\]",
            r"--skip \[Serial\]",
            r"--focus \[Serial\]",
        ];
        let names: BTreeSet<String> = lines.iter().map(|line| args(line).folder_name()).collect();
        assert_eq!(names.len(), lines.len(), "{names:?}");
        for name in &names {
            assert!(name.starts_with("seaway-iptables-seaway"), "{name}");
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            assert!(name.chars().all(plain), "{name}");
        }
        let line = r"--agent kubelet --focus \[sig-network\]";
        assert_eq!(args(line).folder_name(), args(line).folder_name());
    }

    #[test]
    fn the_table_is_kept_with_what_was_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let words = args("--focus a.*b --skip c --nodes 3 --procs 4").words();
        keep_table(dir.path(), &words, "passed 1\n").unwrap();
        let text = fs::read_to_string(dir.path().join("table.txt")).unwrap();
        let chosen = "--focus 'a.*b' --skip 'c' --nodes 3 --procs 4";
        assert_eq!(text, format!("{chosen}\n\npassed 1\n"));
    }
}
