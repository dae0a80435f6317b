//! `kubectl` as administrator, from beside the control plane.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Cluster, tool};

impl Cluster {
    /// Runs `kubectl ARGS` as administrator and returns what it printed.
    ///
    /// # Errors
    /// When it fails, with its error text.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self
            .kubectl_command(args)
            .output()
            .context("start kubectl")?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}{}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `kubectl ARGS`, ready to be started.
    #[must_use]
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(tool("kubectl"));
        // Its discovery cache belongs to this cluster.
        command
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.dir());
        command.stdin(Stdio::null());
        command
    }

    /// `kubectl get ARGS -o json`, parsed.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub fn get(&self, args: &[&str]) -> Result<Value> {
        let words: Vec<&str> = ["get"]
            .iter()
            .chain(args)
            .chain(&["-o", "json"])
            .copied()
            .collect();
        let text = self.kubectl(&words)?;
        serde_json::from_str(&text).with_context(|| format!("parse kubectl {}", words.join(" ")))
    }

    /// `kubectl apply` of a manifest.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.dir()).context("make a manifest file")?;
        std::fs::write(file.path(), manifest).context("write the manifest")?;
        let path = file.path().to_string_lossy();
        self.kubectl(&["apply", "--server-side", "-f", &path])
            .map(drop)
    }
}
