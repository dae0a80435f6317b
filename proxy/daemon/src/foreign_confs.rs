//! Other networks' CNI confs beside ours.
//!
//! Container runtimes take the first conf by name. One that sorts before ours takes
//! the pods away from us, and one that sorts after it gets them whenever ours is not
//! there: at boot, until this node serves. So each is told, and none is touched.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use seaway_podnet::ConfFile;
use serde_json::Value;
use tracing::warn;

#[cfg(test)]
mod tests;

/// What go-cni and ocicni, the libraries of containerd and CRI-O, load.
const LOADED: [&str; 3] = ["conf", "conflist", "json"];

/// A conf that is not ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForeignConf {
    /// Its name in the folder.
    pub(crate) file: String,
    /// What it calls its network, if it can be read.
    pub(crate) network: Option<String>,
    /// Whether the runtime prefers it to ours.
    pub(crate) first: bool,
}

/// Whether a runtime would load a file of this name.
pub(crate) fn is_loaded(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| LOADED.contains(&extension))
}

/// All of them, as the runtime sorts them. A folder that does not exist has none.
///
/// # Errors
/// The folder cannot be listed.
pub(crate) fn find(dir: &Path) -> io::Result<Vec<ForeignConf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A link to a conf is loaded, too.
        let is_dir = std::fs::metadata(entry.path()).is_ok_and(|meta| meta.is_dir());
        let file = entry.file_name().to_string_lossy().into_owned();
        if is_dir || !is_loaded(&file) || file == ConfFile::NAME {
            continue;
        }
        found.push(ForeignConf {
            network: network(&entry.path()),
            first: file.as_str() < ConfFile::NAME,
            file,
        });
    }
    found.sort();
    Ok(found)
}

fn network(path: &Path) -> Option<String> {
    let conf: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    Some(conf["name"].as_str()?.to_owned())
}

/// Says it to the operator.
pub(crate) fn report(dir: &Path, found: &[ForeignConf]) {
    for ForeignConf {
        file,
        network,
        first,
    } in found
    {
        let path = dir.join(file);
        let (path, network) = (path.display(), network.as_deref().unwrap_or("unreadable"));
        if *first {
            warn!(%path, network, "A foreign CNI conf sorts before ours, so pods are not started on ours");
        } else {
            warn!(%path, network, "A foreign CNI conf is used whenever ours is not there");
        }
    }
}
