//! What the plugin's `STATUS` needs to know about the pod network: one small file.
//!
//! The conf alone cannot tell whether the node serves: a runtime goes on with the
//! one that it has read although the file is gone, and a foreign tool may put an
//! old one back. So the conf names this file, and the plugin asks it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::conf::{self, ConfError};

#[cfg(test)]
mod tests;

/// In the run dir.
const FILE_NAME: &str = "pod-network.json";

/// The pod network as it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// How packets get to other nodes, for people.
    pub mode: &'static str,
    /// MTU of pod interfaces, bytes.
    pub mtu: u32,
    /// A link without which pods are cut off from other nodes.
    pub device: Option<String>,
}

/// The state file of this node. Its presence, with this boot's id in it, means that
/// the pod network serves.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    boot_id: PathBuf,
}

impl StateFile {
    /// A state file in `run_dir` (`/run/seaway`).
    pub fn new(run_dir: &Path) -> Self {
        Self {
            path: run_dir.join(FILE_NAME),
            boot_id: conf::BOOT_ID.into(),
        }
    }

    /// Where it is; the conf tells the plugin.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file unless it says this already; tells whether it wrote.
    ///
    /// Readers see the old or the new content, never a part.
    pub fn write(&self, serving: &Serving) -> Result<bool, ConfError> {
        let Serving { mode, mtu, device } = serving;
        let boot_id = self.current_boot()?;
        let mut state = json!({ "bootId": boot_id, "mode": mode, "mtu": mtu });
        if let Some(device) = device {
            state["device"] = json!(device);
        }
        let content = format!("{state:#}\n");
        if conf::read(&self.path)?.as_ref() == Some(&content) {
            return Ok(false);
        }
        conf::replace(&self.path, &content)?;
        Ok(true)
    }

    /// Removes the file if it stems from an earlier boot, or cannot be read; tells whether it did.
    pub fn withdraw_stale(&self) -> Result<bool, ConfError> {
        let Some(content) = conf::read(&self.path)? else {
            return Ok(false);
        };
        let state: Option<Value> = serde_json::from_str(&content).ok();
        let written_in = state.as_ref().and_then(|state| state["bootId"].as_str());
        if written_in == Some(self.current_boot()?.as_str()) {
            return Ok(false);
        }
        self.remove()
    }

    /// Removes the file; absent is fine. Tells whether it was there.
    pub fn remove(&self) -> Result<bool, ConfError> {
        conf::remove(&self.path)
    }

    fn current_boot(&self) -> Result<String, ConfError> {
        Ok(conf::read_boot_id(&self.boot_id)?.trim().to_owned())
    }
}
