//! Calls of the CNI plugin's own verbs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::process::Command;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::chain::Chain;

/// A sweep may wait for the locks of calls under way, and for other IPAM plugins.
const PATIENCE: Duration = Duration::from_mins(2);
const NAME: &str = "seaway-cni";
const CNI_BIN_DIR: &str = "/opt/cni/bin";

/// The plugin's executable and the folder of its records.
#[derive(Debug)]
pub(super) struct Plugin {
    chosen: Option<PathBuf>,
    data_dir: PathBuf,
    /// What was complained about last, which is not said again.
    said: Mutex<Option<String>>,
}

/// A call that brought no report.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("there is no {}", program.display())]
    Absent { program: PathBuf },
    #[error("run {}", program.display())]
    Run {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} has not ended after {} s", program.display(), PATIENCE.as_secs())]
    Late { program: PathBuf },
    #[error("{} gave no report ({status}): {said}", program.display())]
    NoReport {
        program: PathBuf,
        status: std::process::ExitStatus,
        said: String,
    },
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Called<R> {
    /// Its report; the call itself may have failed in parts.
    Report(R),
    /// There is no plugin here.
    Absent,
    /// Reported already.
    Failed,
}

impl Plugin {
    pub(super) fn new(chosen: Option<PathBuf>, data_dir: PathBuf) -> Self {
        let said = Mutex::default();
        Self {
            chosen,
            data_dir,
            said,
        }
    }

    /// Runs the plugin with a verb for all networks that have records, whatever their names,
    /// and reads its report.
    pub(super) async fn call<R: DeserializeOwned>(&self, verb: &str) -> Called<R> {
        match self.report(verb).await {
            Ok(report) => {
                self.say_again();
                Called::Report(report)
            }
            Err(error @ CallError::Absent { .. }) => {
                if self.is_news(&error.to_string()) {
                    info!(reason = %error, "Leaving hostPorts and dead pods to others");
                }
                Called::Absent
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                if self.is_news(&error) {
                    warn!(verb, error, "Cannot call the CNI plugin, trying again");
                } else {
                    debug!(verb, error, "Cannot call the CNI plugin again");
                }
                Called::Failed
            }
        }
    }

    async fn report<R: DeserializeOwned>(&self, verb: &str) -> Result<R, CallError> {
        // Looked for each time: it may be installed later, and replaced.
        let program = self.program();
        if !program.exists() {
            return Err(CallError::Absent { program });
        }
        let mut command = Command::new(&program);
        command.arg(verb).arg("--data-dir").arg(&self.data_dir);
        // With it, this would be a runtime's call.
        command.env_remove("CNI_COMMAND");
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = match timeout(PATIENCE, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(source)) => return Err(CallError::Run { program, source }),
            Err(_late) => return Err(CallError::Late { program }),
        };
        serde_json::from_slice(&output.stdout).map_err(|_not_json| CallError::NoReport {
            program,
            status: output.status,
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    fn program(&self) -> PathBuf {
        if let Some(chosen) = &self.chosen {
            return chosen.clone();
        }
        let own = std::env::current_exe().ok();
        let beside = own.and_then(|own| Some(own.parent()?.join(NAME)));
        beside
            .filter(|path| path.exists())
            .unwrap_or_else(|| Path::new(CNI_BIN_DIR).join(NAME))
    }

    fn is_news(&self, text: &str) -> bool {
        let mut said = self.said.lock().expect("nothing panics while it is held");
        said.replace(text.to_owned()).as_deref() != Some(text)
    }

    fn say_again(&self) {
        *self.said.lock().expect("nothing panics while it is held") = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    const DAEMON_SET: &str = include_str!("../../../../deploy/daemonset.yaml");

    /// A sweep runs another IPAM plugin, by the path that the runtime had for it.
    #[test]
    fn the_daemon_sets_daemon_reaches_other_ipam_plugins_and_writes_no_program() {
        let object: Value = serde_saphyr::from_str(DAEMON_SET).unwrap();
        let pod = &object["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let volumes = volumes.map(|volume| (volume["name"].as_str(), &volume["hostPath"]));
        let volumes: BTreeMap<_, _> = volumes.collect();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        for (path, read_only) in [
            ("/opt/cni/bin", true),
            ("/var/lib/cni", false),
            ("/run/cni", false),
        ] {
            let mount = mounts.iter().find(|mount| mount["mountPath"] == path);
            let mount = mount.unwrap_or_else(|| panic!("{path} is not there"));
            assert_eq!(mount["readOnly"] == true, read_only, "{mount}");
            let host = volumes[&mount["name"].as_str()];
            assert_eq!(host["path"], path);
            // A node without it is no reason for no daemon.
            assert_eq!(host["type"], "DirectoryOrCreate", "{path}");
        }
    }
}
