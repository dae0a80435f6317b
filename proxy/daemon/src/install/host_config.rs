//! Keeps the node's network daemons away from what is ours.
//!
//! NetworkManager and systemd-networkd take every link for theirs unless told
//! otherwise: they take addresses and routes off it, or ask for some by DHCP. And
//! systemd-networkd, when it starts, removes routes and rules that it does not know.
//! What a node's administrator or distribution sets for all links by a pattern
//! (`net.ipv4.conf.*.rp_filter`), udev has systemd-sysctl set on each new one, some time
//! after it has appeared: a pod's would lose what the CNI plugin has set.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process;
use tokio::time::timeout;
use tracing::{info, warn};

use super::files::{self, FileError};
use crate::chain::Chain;

/// Words of a command line; none where there is no such command.
type Command = &'static [&'static str];

/// Those who ask their daemon for this wait for nothing else.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the daemons look for their settings.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// `/etc/NetworkManager`.
    pub network_manager_dir: PathBuf,
    /// `/run/systemd`; beside it is `sysctl.d`.
    pub systemd_run_dir: PathBuf,
}

/// A file with settings, and whose they are.
struct Setting {
    /// This is there if the daemon is used on this node.
    sign: PathBuf,
    path: PathBuf,
    content: &'static str,
    /// What makes the daemon read it.
    reload: Command,
}

// `sw` and twelve digits are what our pods' interfaces are called; a wider pattern
// would take others' away from their owner. `+=`: others have such lines, too.
const NETWORK_MANAGER: &str = "\
# Written by `seaway-proxy install`, removed by `seaway-proxy cleanup`.
[keyfile]
unmanaged-devices+=interface-name:sw????????????;interface-name:seaway.vx
";
const NETWORKD_LINKS: &str = "\
# Written by `seaway-proxy install`, removed by `seaway-proxy cleanup`.
[Match]
Name=sw???????????? seaway.vx

[Link]
Unmanaged=yes
";
// The routes to other nodes lie on links that are systemd-networkd's. It takes the uplink's
// address away and puts it back all the same when it starts (seen with 252); the routes by that
// address, which the kernel drops then, are for the daemon to bring back.
const NETWORKD: &str = "\
# Written by `seaway-proxy install`, removed by `seaway-proxy cleanup`.
[Network]
ManageForeignRoutes=no
ManageForeignRoutingPolicyRules=no
";

// What every pod's link needs; what only some do would be set on all. Of several patterns the
// last one wins, and files are read in the order of their names, letters after digits: ours
// comes after others'. A line without a value excludes a key by its full name and nothing by a
// pattern (seen with systemd 252 and procps 4.0). With `-`, a key that cannot be written is no
// failure. Sources are checked by it also where the node does not, but loosely: whatever an
// answer can be sent to passes.
const SYSCTLS: &str = "\
# Written by `seaway-proxy install`, removed by `seaway-proxy cleanup`.
-net.ipv4.conf.sw????????????.forwarding = 1
-net.ipv4.conf.sw????????????.rp_filter = 2
-net.ipv4.conf.sw????????????.send_redirects = 0
-net.ipv6.conf.sw????????????.accept_ra = 0
";

impl HostConfig {
    fn settings(&self) -> [Setting; 4] {
        let (network_manager, systemd) = (&self.network_manager_dir, &self.systemd_run_dir);
        // systemd-networkd makes this folder when it starts.
        let networkd = systemd.join("netif");
        // So does systemd itself (sd_booted(3)).
        let booted = systemd.join("system");
        [
            Setting {
                sign: network_manager.clone(),
                path: network_manager.join("conf.d/50-seaway.conf"),
                content: NETWORK_MANAGER,
                reload: &["nmcli", "general", "reload", "conf"],
            },
            Setting {
                sign: networkd.clone(),
                path: systemd.join("network/50-seaway.network"),
                content: NETWORKD_LINKS,
                reload: &["networkctl", "reload"],
            },
            Setting {
                sign: networkd,
                path: systemd.join("networkd.conf.d/50-seaway.conf"),
                content: NETWORKD,
                // This one is read at the daemon's start only, which is also when it matters.
                reload: &[],
            },
            Setting {
                sign: booted,
                path: systemd.with_file_name("sysctl.d").join("zzz-seaway.conf"),
                content: SYSCTLS,
                // It is read for each link anew. Those that are there are as they should be.
                reload: &[],
            },
        ]
    }

    /// Writes the settings for the daemons of this node, and makes them read those.
    ///
    /// A failure is told and is none of the install's: the daemons may well not mind us.
    pub(crate) async fn install(&self) {
        for command in self.write() {
            reload(command).await;
        }
    }

    /// Removes the settings; tells whether there were any.
    pub(crate) async fn remove(&self) -> Result<bool, FileError> {
        let removed = self.erase()?;
        for command in &removed {
            reload(command).await;
        }
        Ok(!removed.is_empty())
    }

    /// Gives the commands that make the daemons read what was written.
    pub(super) fn write(&self) -> Vec<Command> {
        let mut written = Vec::new();
        for setting in self.settings() {
            if !setting.sign.is_dir() {
                continue;
            }
            let path = setting.path.display();
            match files::ensure(&setting.path, setting.content) {
                Ok(true) => {
                    info!(%path, "Told the node's network daemon what is not its own");
                    written.push(setting.reload);
                }
                Ok(false) => {}
                Err(error) => {
                    let error = Chain(&error).to_string();
                    warn!(
                        error,
                        "Cannot tell the node's network daemon what is not its own"
                    );
                }
            }
        }
        written
    }

    /// Gives the commands that make the daemons forget what was removed.
    pub(super) fn erase(&self) -> Result<Vec<Command>, FileError> {
        let mut removed = Vec::new();
        for setting in self.settings() {
            if !files::remove(&setting.path)? {
                continue;
            }
            // Folders below /run are made by whoever needs them; that of /etc is the package's.
            let dir = setting.path.parent().unwrap_or(Path::new("/"));
            if !dir.starts_with(&self.network_manager_dir) {
                files::remove_empty_folder(dir)?;
            }
            removed.push(setting.reload);
        }
        Ok(removed)
    }
}

/// In a container there is no such program, and the settings hold from the daemon's next start.
async fn reload(words: Command) {
    let [program, args @ ..] = words else { return };
    let mut command = process::Command::new(program);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let command_line = words.join(" ");
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() => {}
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let (status, said) = (output.status, said.trim());
            warn!(command = command_line, %status, said, "The settings hold from the daemon's next start");
        }
        Ok(Err(_)) | Err(_) => {
            info!(
                command = command_line,
                "The settings hold after this command, or from the daemon's next start"
            );
        }
    }
}
