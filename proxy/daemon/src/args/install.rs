//! Flags of `install`, and those of `cleanup` about what it has installed.

use std::path::PathBuf;

use clap::Args;

use super::Switch;
use super::parse::absolute;
use crate::foreign_confs;
use crate::install::{HostConfig, Install, Installed};

/// `install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Where the container runtime looks for CNI plugins
    #[arg(
        long,
        env = "SEAWAY_CNI_BIN_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/opt/cni/bin"
    )]
    pub cni_bin_dir: PathBuf,
    /// Where the container runtime looks for CNI confs
    #[arg(
        long,
        env = "SEAWAY_CNI_CONF_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/etc/cni/net.d"
    )]
    pub cni_conf_dir: PathBuf,
    /// State that does not outlive a boot: tells --remove which pods need the plugin
    #[arg(
        long,
        env = "SEAWAY_RUN_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/run/seaway"
    )]
    pub run_dir: PathBuf,
    /// The CNI plugin; the seaway-cni beside this program if not given
    #[arg(long, env = "SEAWAY_CNI_SOURCE", value_name = "FILE")]
    pub source: Option<PathBuf>,
    /// Let the plugin serve as loopback, too, where there is none
    #[arg(long, env = "SEAWAY_INSTALL_LOOPBACK")]
    pub loopback: bool,
    /// Set a foreign CNI conf aside, by its name in --cni-conf-dir; cleanup puts it back
    #[arg(
        long,
        env = "SEAWAY_TAKE_OVER_CONF",
        value_name = "FILE",
        value_delimiter = ',',
        value_parser = foreign_conf
    )]
    pub take_over_conf: Vec<String>,
    /// Whether NetworkManager, systemd-networkd and systemd-sysctl are told to leave our links and
    /// routes alone
    #[arg(long, env = "SEAWAY_HOST_CONFIG", value_enum, default_value = "on")]
    pub host_config: Switch,
    /// Where the node's network daemons look for settings
    #[command(flatten)]
    pub host: HostConfigArgs,
    /// Remove what has been installed; after `cleanup`, and only if no pod needs the plugin
    #[arg(long, conflicts_with_all = ["source", "loopback", "take_over_conf"])]
    pub remove: bool,
}

/// Where the node's network daemons look for settings.
#[derive(Clone, Debug, Args)]
pub struct HostConfigArgs {
    /// NetworkManager's folder; there is none where it is not used
    #[arg(
        long,
        env = "SEAWAY_NETWORK_MANAGER_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/etc/NetworkManager"
    )]
    pub network_manager_dir: PathBuf,
    /// systemd's folder of this boot; sysctl.d is beside it
    #[arg(
        long,
        env = "SEAWAY_SYSTEMD_RUN_DIR",
        value_parser = absolute,
        value_name = "DIR",
        default_value = "/run/systemd"
    )]
    pub systemd_run_dir: PathBuf,
}

impl InstallArgs {
    /// The install that these flags mean.
    pub fn install(&self) -> Install {
        Install {
            source: self.source.clone(),
            cni_bin_dir: self.cni_bin_dir.clone(),
            cni_conf_dir: self.cni_conf_dir.clone(),
            loopback: self.loopback,
            take_over: self.take_over_conf.clone(),
            host: (self.host_config == Switch::On).then(|| self.host.config()),
        }
    }

    /// What is to be removed.
    pub fn installed(&self) -> Installed {
        Installed {
            cni_bin_dir: Some(self.cni_bin_dir.clone()),
            cni_conf_dir: self.cni_conf_dir.clone(),
            run_dir: self.run_dir.clone(),
            host: self.host.config(),
        }
    }
}

impl HostConfigArgs {
    /// The same as plain data.
    pub fn config(&self) -> HostConfig {
        HostConfig {
            network_manager_dir: self.network_manager_dir.clone(),
            systemd_run_dir: self.systemd_run_dir.clone(),
        }
    }
}

/// Only what the runtime would load, and never ours.
fn foreign_conf(value: &str) -> Result<String, String> {
    if value.contains('/') || !foreign_confs::is_loaded(value) {
        return Err("not the name of a CNI conf, such as 10-bridge.conflist".to_owned());
    }
    if value == seaway_podnet::ConfFile::NAME {
        return Err("this is our own conf".to_owned());
    }
    Ok(value.to_owned())
}
