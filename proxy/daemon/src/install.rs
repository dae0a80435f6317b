//! What is put on a node's disk before the daemon runs, and its removal.
//!
//! An init container's job: the plugin's binary, settings for the node's network
//! daemons, and foreign CNI confs set aside. The CNI conf is none of it: that is a
//! promise that only the daemon can give.

use std::path::PathBuf;

use anyhow::Context as _;
use tracing::{info, warn};

use crate::foreign_confs;

mod callers;
mod files;
mod host_config;
mod plugin;
mod probe;
pub(crate) mod records;
mod take_over;
#[cfg(test)]
mod tests;

pub use host_config::HostConfig;
use plugin::Loopback;

/// What to install, and where.
#[derive(Clone, Debug)]
pub struct Install {
    /// The plugin's binary; the one beside this program if not given.
    pub source: Option<PathBuf>,
    /// Where the container runtime looks for CNI plugins.
    pub cni_bin_dir: PathBuf,
    /// Where the container runtime looks for CNI confs.
    pub cni_conf_dir: PathBuf,
    /// Whether the plugin serves as `loopback`, too, where there is none.
    pub loopback: bool,
    /// Foreign confs to be set aside, by their names in `cni_conf_dir`.
    pub take_over: Vec<String>,
    /// Settings for the node's network daemons, if they are wanted.
    pub host: Option<HostConfig>,
}

/// What an install has left on the node, to be removed.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Where the plugin is; it stays if this is not given.
    pub cni_bin_dir: Option<PathBuf>,
    /// Where foreign confs are set aside.
    pub cni_conf_dir: PathBuf,
    /// Where state of this boot is kept, and which pods need the plugin.
    pub run_dir: PathBuf,
    /// Settings for the node's network daemons.
    pub host: HostConfig,
}

/// Installs; may be repeated.
///
/// # Errors
/// The first step that failed. What the runtime uses works on as before.
pub async fn install(install: Install) -> anyhow::Result<()> {
    let dir = &install.cni_bin_dir;
    let source = match install.source {
        Some(source) => source,
        None => std::env::current_exe()
            .context("find the folder of this program; --source names the CNI plugin")?
            .with_file_name(plugin::NAME),
    };
    let written = plugin::install(&source, dir).await?;
    let path = dir.join(plugin::NAME);
    let said = if written {
        "Installed the CNI plugin"
    } else {
        "The CNI plugin is installed already"
    };
    info!(path = %path.display(), "{said}");
    loopback(&install.cni_bin_dir, install.loopback)?;
    if let Some(host) = &install.host {
        host.install().await;
    }
    for file in &install.take_over {
        if take_over::set_aside(&install.cni_conf_dir, file)? {
            info!(file, "Set a foreign CNI conf aside");
        }
    }
    let found = foreign_confs::find(&install.cni_conf_dir)
        .with_context(|| format!("list {}", install.cni_conf_dir.display()))?;
    foreign_confs::report(&install.cni_conf_dir, &found);
    Ok(())
}

fn loopback(dir: &std::path::Path, wanted: bool) -> anyhow::Result<()> {
    let path = dir.join("loopback");
    let path = path.display();
    if wanted {
        match plugin::ensure_loopback(dir)? {
            Loopback::Missing => info!(%path, "Installed the CNI plugin as loopback, too"),
            Loopback::Ours => {}
            Loopback::Foreign => info!(%path, "Left the loopback plugin that is there"),
        }
    } else if plugin::loopback(dir)? == Loopback::Missing {
        warn!(%path, "No loopback plugin is there, and containerd starts no pod without; --loopback installs ours");
    }
    Ok(())
}

/// Removes what an install has left on a node from which the rest is gone.
///
/// # Errors
/// The CNI conf is there still, a daemon runs, a pod needs the plugin, or a step failed.
pub async fn uninstall(installed: Installed) -> anyhow::Result<()> {
    let callers = installed.require_no_caller().await;
    callers.context("`seaway-proxy cleanup` comes first, without a daemon")?;
    let settings = installed.remove_settings().await;
    let confs = installed.put_confs_back();
    installed.remove_plugin().await?;
    settings.and(confs).map(drop)
}

/// Each tells whether there was anything to remove.
impl Installed {
    pub(crate) async fn remove_settings(&self) -> anyhow::Result<bool> {
        Ok(self.host.remove().await?)
    }

    pub(crate) fn put_confs_back(&self) -> anyhow::Result<bool> {
        Ok(take_over::put_back(&self.cni_conf_dir)?)
    }

    /// Whether a daemon of this node is still at work.
    pub(crate) async fn daemon_runs(&self) -> bool {
        callers::daemon_runs(&self.run_dir).await
    }

    async fn require_no_caller(&self) -> anyhow::Result<()> {
        callers::require_none(&self.cni_conf_dir, &self.run_dir).await
    }

    /// The last step: until then a pod that is deleted calls the plugin. It stays as long as
    /// there is a conf, whoever has kept that from being removed or has written it again.
    pub(crate) async fn remove_plugin(&self) -> anyhow::Result<bool> {
        let data_dir = records::data_dir(&self.run_dir);
        let mut any = false;
        if let Some(dir) = &self.cni_bin_dir {
            if plugin::is_there(dir)? {
                self.require_no_caller().await?;
                records::require_none(&data_dir, &dir.join(plugin::NAME))?;
            }
            any = plugin::remove(dir)?;
        }
        if records::pods(&data_dir)?.is_empty() {
            any |= records::remove_empty(&data_dir)?;
            files::remove_empty_folder(&self.run_dir)?;
        }
        Ok(any)
    }
}
