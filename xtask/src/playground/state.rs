//! What `up` leaves for `down`: a file in the cache.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::cache;

/// A running playground.
pub(super) struct State {
    /// The process that holds it
    pub(super) pid: i32,
    /// What to tell the user
    pub(super) how_to: String,
}

impl State {
    /// Reads the file; none, or one of a process that is gone, is no state.
    pub(super) fn load() -> Result<Option<Self>> {
        let path = path()?;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let value: Value =
            serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        let pid = value["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or(0);
        // A pid may have been given to something else since; its program tells.
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_ours = program.file_name().is_some_and(|name| {
            // A program that was built again meanwhile has " (deleted)" behind its name.
            name.to_string_lossy().starts_with("xtask")
        });
        let how_to = value["how_to"].as_str().unwrap_or_default().to_owned();
        Ok(is_ours.then_some(Self { pid, how_to }))
    }

    /// Writes the file, at once as a whole.
    pub(super) fn save(&self) -> Result<()> {
        let path = path()?;
        let fresh = path.with_extension("new");
        let text = json!({"pid": self.pid, "how_to": self.how_to}).to_string();
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Removes the file.
    pub(super) fn remove() -> Result<()> {
        let path = path()?;
        remove(&path).with_context(|| format!("remove {}", path.display()))
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn path() -> Result<PathBuf> {
    Ok(cache::dir()?.join("playground.json"))
}
