//! Volumes of pods: prepared before the first container, refreshed while the pod
//! lives, removed when it is gone.
//!
//! Kinds: emptyDir, hostPath, configMap, secret, downwardAPI, projected. Others are
//! refused at admission and by name here. It deliberately knows nothing of
//! containers: it hands out one path on the node for each volume.
//!
//! ```text
//! PODS/<uid>/volumes/kubernetes.io~<kind>/<volume>
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};
use seaway_agent_core::payload::PayloadError;
use seaway_agent_core::quantity;

use crate::objects::{ObjectError, Objects};

mod atomic;
mod host_path;
mod mounts;
mod ownership;
mod sources;
mod tokens;

pub use host_path::HostPathError;

/// Where volumes live and whose they are.
#[derive(Clone, Debug)]
pub struct VolumesConfig {
    /// Directory of pod directories, one for each UID.
    pub pods_dir: PathBuf,
}

/// A volume as the container runtime needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVolume {
    /// Path on the node.
    pub path: PathBuf,
    /// Whether every mount of it is read-only, whatever the container says.
    pub read_only: bool,
}

/// All volumes of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedVolumes {
    /// By volume name.
    pub by_name: BTreeMap<String, HostVolume>,
}

/// A volume could not be made ready or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// One volume of a pod; what `FailedMount` tells.
    #[error("MountVolume.SetUp failed for volume {volume:?}")]
    SetUp {
        /// Volume name.
        volume: String,
        /// Why.
        #[source]
        source: SetUpError,
    },
    /// The pod's directory could not be removed.
    #[error("remove volumes of pod {uid} below {dir}")]
    TearDown {
        /// The pod's UID.
        uid: String,
        /// Its directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The directory of pods could not be read.
    #[error("list pod directories in {dir}")]
    List {
        /// The directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why one volume could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// Not a kind that this agent has.
    #[error("volume kind is not supported")]
    UnsupportedKind,
    /// An object it refers to is missing or could not be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An object's content does not fit the volume's items.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A downward API field cannot be resolved.
    #[error("field {field}: {reason}")]
    Field {
        /// `metadata.labels`, for example.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A hostPath is not of its type.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// A size cannot be read.
    #[error("sizeLimit")]
    Size(#[source] quantity::QuantityError),
    /// The file system refused.
    #[error("write {path}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Prepares and removes the volumes of this node's pods.
pub struct Volumes {
    config: VolumesConfig,
    objects: Arc<dyn Objects>,
    tokens: tokens::Tokens,
}

impl std::fmt::Debug for Volumes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volumes")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Volumes {
    /// Volumes below `config.pods_dir`, with contents from `objects`.
    pub fn new(config: VolumesConfig, objects: Arc<dyn Objects>) -> Self {
        Self {
            config,
            objects,
            tokens: tokens::Tokens::default(),
        }
    }

    /// Makes every volume of `pod` ready. Idempotent; also brings the files of
    /// config volumes up to date.
    ///
    /// # Errors
    /// The first volume that fails; the ones before it stay ready.
    pub async fn prepare(&self, pod: &Pod) -> Result<PreparedVolumes, VolumeError> {
        let mut prepared = PreparedVolumes::default();
        for volume in pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten())
        {
            let ready = self.prepare_one(pod, volume).await;
            let ready = ready.map_err(|source| VolumeError::SetUp {
                volume: volume.name.clone(),
                source,
            })?;
            prepared.by_name.insert(volume.name.clone(), ready);
        }
        Ok(prepared)
    }

    /// Removes everything that [`prepare`](Self::prepare) made for the pod, and
    /// its directory. Absent is fine; never follows a mount or a link out.
    pub async fn teardown(&self, uid: &str) -> Result<(), VolumeError> {
        self.tokens.forget(uid);
        let dir = self.config.pods_dir.join(uid);
        let removed = blocking({
            let dir = dir.clone();
            move || {
                mounts::unmount_below(&dir)?;
                match fs::remove_dir_all(&dir) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    other => other,
                }
            }
        });
        removed.await.map_err(|source| VolumeError::TearDown {
            uid: uid.into(),
            dir,
            source,
        })
    }

    /// UIDs of the pods that have a directory, this boot's and earlier ones'.
    pub fn list_uids(&self) -> Result<Vec<String>, VolumeError> {
        let fail = |source| VolumeError::List {
            dir: self.config.pods_dir.clone(),
            source,
        };
        let entries = match fs::read_dir(&self.config.pods_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail)?,
        };
        entries
            .map(|entry| {
                Ok(entry
                    .map_err(fail)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned())
            })
            .collect()
    }

    async fn prepare_one(&self, pod: &Pod, volume: &Volume) -> Result<HostVolume, SetUpError> {
        if let Some(host_path) = &volume.host_path {
            let path = PathBuf::from(&host_path.path);
            host_path::check(&path, host_path.type_.as_deref().unwrap_or_default())?;
            return Ok(HostVolume {
                path,
                read_only: false,
            });
        }
        if let Some(empty_dir) = &volume.empty_dir {
            let path = self.dir_of(pod, "empty-dir", &volume.name);
            prepare_empty_dir(path.clone(), empty_dir, fs_group(pod)).await?;
            return Ok(HostVolume {
                path,
                read_only: false,
            });
        }
        let kind = sources::kind(volume).ok_or(SetUpError::UnsupportedKind)?;
        let payload = sources::payload(pod, volume, self.objects.as_ref(), &self.tokens).await?;
        let path = self.dir_of(pod, kind, &volume.name);
        let group = fs_group(pod).map(|(group, _)| group);
        let on_disk = kind == "configmap";
        on_path(path.clone(), move |dir| {
            make_dir(dir, 0o755)?;
            if !on_disk {
                mounts::ensure_tmpfs(dir, None)?;
            }
            atomic::write(dir, &payload, group).map(drop)
        })
        .await?;
        Ok(HostVolume {
            path,
            read_only: false,
        })
    }

    fn dir_of(&self, pod: &Pod, kind: &str, volume: &str) -> PathBuf {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let kind = format!("kubernetes.io~{kind}");
        self.config
            .pods_dir
            .join(uid)
            .join("volumes")
            .join(kind)
            .join(volume)
    }
}

/// `fsGroup`, and whether a root that fits already is enough.
fn fs_group(pod: &Pod) -> Option<(u32, bool)> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    let group = u32::try_from(context.fs_group?).ok()?;
    Some((
        group,
        context.fs_group_change_policy.as_deref() == Some("OnRootMismatch"),
    ))
}

async fn prepare_empty_dir(
    path: PathBuf,
    source: &EmptyDirVolumeSource,
    group: Option<(u32, bool)>,
) -> Result<(), SetUpError> {
    let in_memory = source.medium.as_deref() == Some("Memory");
    let size = source
        .size_limit
        .as_ref()
        .map(quantity::bytes)
        .transpose()
        .map_err(SetUpError::Size)?;
    on_path(path, move |dir| {
        let fresh = !dir.exists();
        make_dir(dir, 0o755)?;
        if in_memory {
            mounts::ensure_tmpfs(dir, size)?;
        }
        if fresh {
            // Whatever the umask, and on the tmpfs where there is one.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
        }
        match group {
            Some((group, only_on_mismatch)) => {
                ownership::give_to_group(dir, group, only_on_mismatch)
            }
            None => Ok(()),
        }
    })
    .await
}

fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(dir)
}

async fn on_path(
    path: PathBuf,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), SetUpError> {
    let dir = path.clone();
    blocking(move || work(&dir))
        .await
        .map_err(|source| SetUpError::Io { path, source })
}

/// File systems can be slow; a worker thread of the runtime must not wait for them.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
