//! Exec: the upgraded connection is passed on to the runtime. Attach and port-forward
//! are not served yet, and say so.
//!
//! Neither SPDY nor WebSocket is understood here. The request goes to the runtime's
//! streaming server as it came, and after its `101` bytes flow both ways.

mod proxy;

use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tracing::warn;

use super::log_request::container_status;
use super::pod_access::Streams;
use super::refusal::Refusal;
use super::routes::{AppState, check_container, find_pod};
use crate::api::error::Chain;

/// Path of `/exec`, with or without a UID.
#[derive(Debug, Deserialize)]
pub(super) struct ContainerPath {
    namespace: String,
    pod: String,
    uid: Option<String>,
    container: String,
}

/// A process in a container.
pub(super) async fn exec(
    State(state): State<AppState>,
    Path(path): Path<ContainerPath>,
    request: Request,
) -> Result<Response, Refusal> {
    let (streams, command) = wanted(request.uri())?;
    let container_id = running_container(&state, &path)?;
    let url = state
        .pods
        .exec_url(container_id, command, streams)
        .await
        .map_err(|error| {
            warn!(error = %Chain(&error), "Container runtime serves no stream");
            let text = format!("error: {}", Chain(&error));
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
    proxy::forward(request, &url, &state.tasks)
        .await
        .map_err(|error| {
            warn!(error = %Chain(&error), "Could not pass a stream on to the container runtime");
            Refusal::new(StatusCode::BAD_GATEWAY, Chain(&error).to_string())
        })
}

/// Attach and port-forward.
pub(super) async fn not_served() -> Refusal {
    let text = "attach and port-forward are not supported by this node agent yet";
    Refusal::new(StatusCode::NOT_IMPLEMENTED, text)
}

/// The runtime's id of a container that runs.
fn running_container(state: &AppState, path: &ContainerPath) -> Result<String, Refusal> {
    let pod = find_pod(state, &path.namespace, &path.pod, path.uid.as_deref())?;
    check_container(&pod, &path.container)?;
    running_id(&pod, &path.container).ok_or_else(|| {
        let text = format!("container not found ({:?})", path.container);
        Refusal::not_found(text)
    })
}

fn running_id(pod: &Pod, container: &str) -> Option<String> {
    let status = container_status(pod, container)?;
    status.state.as_ref()?.running.as_ref()?;
    let id = status.container_id.as_deref()?;
    // `containerd://ID`
    Some(
        id.split_once("://")
            .map_or(id, |(_scheme, id)| id)
            .to_owned(),
    )
}

/// The parameters as the API server names them towards a node (`ExecStdinParam`, …).
fn wanted(uri: &Uri) -> Result<(Streams, Vec<String>), Refusal> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| Refusal::new(error.status(), error.body_text()))?;
    let is_set = |name: &str| {
        pairs
            .iter()
            .any(|(key, value)| key == name && matches!(value.as_str(), "1" | "true"))
    };
    let tty = is_set("tty");
    let streams = Streams {
        stdin: is_set("input"),
        stdout: is_set("output"),
        // A terminal has one stream for both.
        stderr: is_set("error") && !tty,
        tty,
    };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    }
    let command = pairs.into_iter().filter(|(key, _)| key == "command");
    Ok((streams, command.map(|(_key, value)| value).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_api_server() {
        let wanted = |query: &str| wanted(&format!("/exec/a/b/c?{query}").parse().unwrap());
        let (streams, command) =
            wanted("command=sh&command=-c&command=a+b%26&input=1&output=1&error=1&tty=1").unwrap();
        assert_eq!(command, ["sh", "-c", "a b&"]);
        assert_eq!(
            streams,
            Streams {
                stdin: true,
                stdout: true,
                stderr: false,
                tty: true
            }
        );
        assert!(wanted("output=1&error=1").unwrap().0.stderr);
        assert_eq!(
            wanted("command=x").unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
    }
}
