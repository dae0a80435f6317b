//! Asking Services on a node, by the programs that a person would use.

use std::collections::BTreeMap;
use std::process::Output;

use anyhow::{Context as _, Result, bail};

use super::Node;

impl Node {
    /// `curl URL` on the node itself.
    ///
    /// # Errors
    /// When curl fails, with its exit status (7: refused, 28: timed out) and words.
    pub fn curl(&self, url: &str) -> Result<String> {
        let asked = self.run(&["curl", "--silent", "--show-error", "--max-time", "3", url])?;
        said(&format!("curl {url} on the node"), &asked)
    }

    /// `wget URL` in a pod.
    ///
    /// # Errors
    /// When wget fails, with its words.
    pub fn wget(&self, pod: &str, url: &str) -> Result<String> {
        let asked = self.exec(pod, &["timeout", "5", "wget", "-q", "-O", "-", url])?;
        said(&format!("wget {url} in pod {pod}"), &asked)
    }

    /// Kills the main process of a pod's first container, as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub fn crash(&self, pod: &str) -> Result<()> {
        let view = self.pod(pod)?;
        let container = view
            .containers
            .first()
            .with_context(|| format!("{view:?}"))?;
        let killed = self
            .ctr()
            .args(["tasks", "kill", "--signal", "SIGKILL", container])
            .output()?;
        said(&format!("kill container {container}"), &killed).map(drop)
    }
}

/// Asks until each of `names` has answered; returns how often each did.
///
/// # Errors
/// When asking fails even once, somebody else answers, or one of them never does.
pub fn all_answer(
    names: &[&str],
    mut ask: impl FnMut() -> Result<String>,
) -> Result<BTreeMap<String, u32>> {
    /// With two servers, chance misses one of them once in 2^63 runs.
    const ENOUGH: u32 = 64;
    let mut answers = BTreeMap::new();
    for _ in 0..ENOUGH {
        let answer = ask()?;
        if !names.contains(&answer.as_str()) {
            bail!("{answer:?} answered, expected one of {names:?}");
        }
        *answers.entry(answer).or_insert(0) += 1;
        if answers.len() == names.len() {
            return Ok(answers);
        }
    }
    bail!("of {names:?} only these have answered: {answers:?}")
}

fn said(what: &str, output: &Output) -> Result<String> {
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{what}: {}: {}", output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
