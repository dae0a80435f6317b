//! Which pods still need the plugin's `DEL`.
//!
//! Reads the names of the plugin's records (`cni-plugin/src/ipam.rs`), which say
//! everything:
//!
//! ```text
//! DATADIR/NETWORK/BOOT-ID/ADDRESS=CONTAINER:IFNAME
//! DATADIR/NETWORK/{lock,busy,sweep.json,.new-PID}
//! DATADIR/NETWORK/BOOT-ID/{.order-v4,.order-v6,.new-PID}
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::{self, FileError, failed};

/// The kernel's name for this boot, random(4).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How many pods an error names.
const NAMED: usize = 10;

/// Somebody still needs the plugin.
#[derive(Debug, thiserror::Error)]
#[error("the CNI plugin {} stays, since {count} pods still need its DEL: {}{}", plugin.display(),
    pods.join(", "), if *count > pods.len() { ", …" } else { "" })]
pub(crate) struct StillNeeded {
    plugin: PathBuf,
    count: usize,
    /// The first of them.
    pods: Vec<String>,
}

/// Where the plugin keeps its records; must not outlive a boot.
pub(crate) fn data_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("cni")
}

/// The pods with records of this boot: `namespace/name` where that is known, with the
/// container. Those of another boot have lost their network with it.
pub(crate) fn pods(data_dir: &Path) -> Result<Vec<String>, FileError> {
    let boot = fs::read_to_string(BOOT_ID).map_err(failed("read", BOOT_ID))?;
    let mut found = BTreeMap::new();
    for (network, dir) in files::list(data_dir)? {
        for (name, path) in files::list(&dir.join(boot.trim()))? {
            let Some((_address, holder)) = name.split_once('=') else {
                continue;
            };
            // An address of each family makes two records of one attachment.
            let pod = found.entry((network.clone(), holder.to_owned()));
            pod.or_insert_with(|| describe(&path, holder));
        }
    }
    Ok(found.into_values().collect())
}

fn describe(record: &Path, holder: &str) -> String {
    let content = fs::read(record).unwrap_or_default();
    let content: Value = serde_json::from_slice(&content).unwrap_or_default();
    match content["pod"].as_str() {
        Some(pod) => format!("{pod} (container {holder})"),
        None => format!("container {holder}"),
    }
}

/// # Errors
/// Pods are left, or that cannot be told.
pub(crate) fn require_none(data_dir: &Path, plugin: &Path) -> Result<(), anyhow::Error> {
    let mut pods = pods(data_dir)?;
    let count = pods.len();
    if count == 0 {
        return Ok(());
    }
    pods.truncate(NAMED);
    let plugin = plugin.to_owned();
    Err(StillNeeded {
        plugin,
        count,
        pods,
    }
    .into())
}

/// Removes what is left when there are no records: locks, what helps the plugin's memory,
/// and empty folders. Tells whether anything was there.
pub(crate) fn remove_empty(data_dir: &Path) -> Result<bool, FileError> {
    let mut any = false;
    for (_, network) in files::list(data_dir)? {
        for (name, path) in files::list(&network)? {
            if is_besides_records(&name) {
                any |= files::remove(&path)?;
                continue;
            }
            for (name, path) in files::list(&path)? {
                if is_besides_records(&name) {
                    any |= files::remove(&path)?;
                }
            }
            any |= path.is_dir() && files::remove_empty_folder(&path)?;
        }
        any |= network.is_dir() && files::remove_empty_folder(&network)?;
    }
    any |= data_dir.is_dir() && files::remove_empty_folder(data_dir)?;
    Ok(any)
}

fn is_besides_records(name: &str) -> bool {
    // Earlier builds had busy.NN, and one .order for both families.
    let begins = ["busy", ".order", ".new-"];
    matches!(name, "lock" | "sweep.json" | ".probe")
        || begins.iter().any(|begin| name.starts_with(begin))
}
