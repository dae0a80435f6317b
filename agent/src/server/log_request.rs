//! What a log request asks for: which file, which part of it.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde::Deserialize;

use crate::logs::select::LogOptions;

/// The query of `/containerLogs`, as the API server sends it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogQuery {
    follow: Option<String>,
    previous: Option<String>,
    timestamps: Option<String>,
    since_seconds: Option<String>,
    since_time: Option<String>,
    tail_lines: Option<String>,
    limit_bytes: Option<String>,
}

impl LogQuery {
    /// The text of an error is for the caller (422).
    pub(super) fn options(&self, now: Timestamp) -> Result<LogOptions, String> {
        let since_seconds = positive("sinceSeconds", self.since_seconds.as_deref())?;
        let since = match (since_seconds, self.since_time.as_deref()) {
            (Some(_), Some(_)) => {
                return Err("at most one of `sinceTime` or `sinceSeconds` may be specified".into());
            }
            (Some(seconds), None) => {
                let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                Some(now.checked_sub(ago).unwrap_or(Timestamp::MIN))
            }
            (None, Some(time)) => Some(time.parse().map_err(|_syntax: jiff::Error| {
                format!("sinceTime: Invalid value: {time:?}: must be RFC 3339")
            })?),
            (None, None) => None,
        };
        Ok(LogOptions {
            follow: flag("follow", self.follow.as_deref())?,
            previous: flag("previous", self.previous.as_deref())?,
            timestamps: flag("timestamps", self.timestamps.as_deref())?,
            since,
            tail_lines: number("tailLines", self.tail_lines.as_deref())?,
            limit_bytes: positive("limitBytes", self.limit_bytes.as_deref())?,
        })
    }
}

/// As `strconv.ParseBool` in the API machinery: a bare `follow` means yes.
fn flag(name: &str, text: Option<&str>) -> Result<bool, String> {
    match text {
        None | Some("0" | "f" | "false" | "F" | "FALSE" | "False") => Ok(false),
        Some("" | "1" | "t" | "true" | "T" | "TRUE" | "True") => Ok(true),
        Some(other) => Err(format!(
            "{name}: Invalid value: {other:?}: must be true or false"
        )),
    }
}

fn number(name: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    text.map(|text| {
        text.parse().map_err(|_syntax: std::num::ParseIntError| {
            format!("{name}: Invalid value: {text:?}: must be greater than or equal to 0")
        })
    })
    .transpose()
}

fn positive(name: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    match number(name, text)? {
        Some(0) => Err(format!("{name}: Invalid value: 0: must be greater than 0")),
        other => Ok(other),
    }
}

/// A container's instance, by its place in the log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// The runtime's id, with its scheme.
    pub(super) container_id: String,
    /// How many instances came before it.
    pub(super) attempt: u32,
}

/// Which instance's log is meant; the text of an error is for the caller (400) and is
/// kubelet's (`validateContainerLogStatus`).
pub(super) fn instance(pod: &Pod, container: &str, previous: bool) -> Result<Instance, String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(status) = container_status(pod, container) else {
        return Err(format!(
            "container {container:?} in pod {pod_name:?} is not available"
        ));
    };
    let count = u32::try_from(status.restart_count).unwrap_or_default();
    let state = status.state.clone().unwrap_or_default();
    let last = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let last_id = last
        .and_then(|last| last.container_id.clone())
        .filter(|id| !id.is_empty());
    // With a current instance `count` is its number, and the last one came before it.
    let current = current_id(status);
    let last_attempt = if current.is_some() {
        count.saturating_sub(1)
    } else {
        count
    };
    let before = last_id.map(|container_id| Instance {
        container_id,
        attempt: last_attempt,
    });
    if previous {
        return before.ok_or_else(|| {
            format!("previous terminated container {container:?} in pod {pod_name:?} not found")
        });
    }
    if let Some(container_id) = current {
        return Ok(Instance {
            container_id,
            attempt: count,
        });
    }
    if let Some(before) = before {
        return Ok(before);
    }
    let why = match state.waiting.and_then(|waiting| waiting.reason) {
        _ if state.terminated.is_some() || last.is_some() => "terminated".to_owned(),
        Some(reason) => match reason.as_str() {
            "ErrImagePull" => "waiting to start: image can't be pulled".to_owned(),
            "ImagePullBackOff" => "waiting to start: trying and failing to pull image".to_owned(),
            reason => format!("waiting to start: {reason}"),
        },
        None => "waiting to start - no logs yet".to_owned(),
    };
    Err(format!(
        "container {container:?} in pod {pod_name:?} is {why}"
    ))
}

/// The id of the instance that `state` is about, if it has one.
fn current_id(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref()?;
    let id = if state.running.is_some() {
        status.container_id.clone()
    } else {
        state.terminated.as_ref()?.container_id.clone()
    };
    id.filter(|id| !id.is_empty())
}

/// Whether that instance still runs.
pub(super) fn is_running(pod: &Pod, container: &str, instance: &Instance) -> bool {
    container_status(pod, container).is_some_and(|status| {
        status.container_id.as_deref() == Some(&instance.container_id)
            && status
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
    })
}

/// Its status, whichever kind of container it is.
pub(super) fn container_status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .find(|status| status.name == container)
}

/// Where the runtime writes an instance's log.
pub fn log_path(pod_log_dir: &Path, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    let metadata = &pod.metadata;
    let directory = format!(
        "{}_{}_{}",
        of(&metadata.namespace),
        of(&metadata.name),
        of(&metadata.uid)
    );
    pod_log_dir
        .join(directory)
        .join(container)
        .join(format!("{attempt}.log"))
}

#[cfg(test)]
mod tests;
