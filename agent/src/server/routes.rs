//! The paths of the HTTPS API.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::authorize::{Access, Authorizer};
use super::healthz::ok;
use super::identity::Identity;
use super::log_request::{self, LogQuery};
use super::pod_access::PodAccess;
use super::refusal::Refusal;
use super::stream;
use crate::api::error::Chain;
use crate::logs::follow::send_log;

/// Chunks of a log on their way to a slow reader; then reading waits.
const LOG_QUEUE: usize = 4;

/// What the handlers need.
#[derive(Clone)]
pub struct AppState {
    /// The node's pods and their streams.
    pub pods: Arc<dyn PodAccess>,
    /// Who may call.
    pub authorizer: Arc<dyn Authorizer>,
    /// Below which directory containers' logs are.
    pub pod_log_dir: PathBuf,
    /// Owns the tasks that outlive a request.
    pub tasks: TaskTracker,
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState")
            .field("pod_log_dir", &self.pod_log_dir)
            .finish_non_exhaustive()
    }
}

/// Everything that is served, behind the authorizer.
pub fn router(state: AppState) -> Router {
    let exec = get(stream::exec).post(stream::exec);
    let not_served = any(stream::not_served);
    Router::new()
        .route("/healthz", get(ok))
        .route("/healthz/ping", get(ok))
        .route("/pods", get(pods))
        .route(
            "/containerLogs/{namespace}/{pod}/{container}",
            get(container_logs),
        )
        .route("/exec/{namespace}/{pod}/{container}", exec.clone())
        .route("/exec/{namespace}/{pod}/{uid}/{container}", exec)
        .route("/attach/{*rest}", not_served.clone())
        .route("/portForward/{*rest}", not_served)
        .layer(middleware::from_fn_with_state(state.clone(), authorize))
        .with_state(state)
}

async fn authorize(
    State(state): State<AppState>,
    Extension(who): Extension<Arc<Identity>>,
    request: Request,
    next: Next,
) -> Response {
    let access = Access::of(request.method(), request.uri().path());
    match state.authorizer.allows(&who, &access).await {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            let (user, verb, path) = (&who.user, access.verb, request.uri().path());
            info!(user, verb, path, "Refused a request");
            let text = format!(
                "Forbidden (user={user}, verb={verb}, resource=nodes, subresource={:?})",
                access.subresources
            );
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(error) => {
            warn!(user = who.user, error = %Chain(&error), "Could not ask whether a caller may");
            let text = format!("Authorization error (user={})", who.user);
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

async fn pods(State(state): State<AppState>) -> Response {
    let items = state
        .pods
        .pods()
        .into_iter()
        .map(Arc::unwrap_or_clone)
        .collect();
    Json(List::<Pod> {
        items,
        ..List::default()
    })
    .into_response()
}

/// The pod of that name which is newest, or exactly the one of that UID. While a pod
/// ends, another of its name may already be there.
pub(super) fn find_pod(
    state: &AppState,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Result<Arc<Pod>, Refusal> {
    let found = state
        .pods
        .pods()
        .into_iter()
        .filter(|pod| {
            let metadata = &pod.metadata;
            metadata.namespace.as_deref() == Some(namespace)
                && metadata.name.as_deref() == Some(name)
                && (uid.is_none() || metadata.uid.as_deref() == uid)
        })
        .max_by_key(|pod| {
            let ends = pod.metadata.deletion_timestamp.is_some();
            (!ends, pod.metadata.creation_timestamp.clone())
        });
    found.ok_or_else(|| {
        Refusal::not_found(format!("pod {name:?} in namespace {namespace:?} not found"))
    })
}

/// 404 unless the pod's spec has that container.
pub(super) fn check_container(pod: &Pod, container: &str) -> Result<(), Refusal> {
    let spec = pod.spec.as_ref();
    let names = |spec: &k8s_openapi::api::core::v1::PodSpec| {
        let init = spec.init_containers.iter().flatten();
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        spec.containers
            .iter()
            .chain(init)
            .any(|known| known.name == container)
            || ephemeral.into_iter().any(|known| known.name == container)
    };
    if spec.is_some_and(names) {
        return Ok(());
    }
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    let text = format!("container {container:?} not found in pod {pod:?}");
    Err(Refusal::not_found(text))
}

async fn container_logs(
    State(state): State<AppState>,
    Path((namespace, name, container)): Path<(String, String, String)>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Refusal> {
    let refused = |status: StatusCode| move |text: String| Refusal::new(status, text);
    let options = query
        .options(Timestamp::now())
        .map_err(refused(StatusCode::UNPROCESSABLE_ENTITY))?;
    let pod = find_pod(&state, &namespace, &name, None)?;
    check_container(&pod, &container)?;
    let instance = log_request::instance(&pod, &container, options.previous)
        .map_err(refused(StatusCode::BAD_REQUEST))?;
    let path = log_request::log_path(&state.pod_log_dir, &pod, &container, instance.attempt);
    if let Err(error) = tokio::fs::metadata(&path).await {
        let text = format!("failed to open log file {:?}: {error}", path.display());
        return Err(refused(StatusCode::INTERNAL_SERVER_ERROR)(text));
    }
    let (sender, receiver) = mpsc::channel(LOG_QUEUE);
    let uid = pod.metadata.uid.clone();
    let pods = Arc::clone(&state.pods);
    state.tasks.spawn(async move {
        let alive = || {
            let pods = pods.pods();
            let pod = pods.iter().find(|pod| pod.metadata.uid == uid);
            pod.is_some_and(|pod| log_request::is_running(pod, &container, &instance))
        };
        send_log(&path, &options, alive, sender).await;
    });
    Ok(Body::from_stream(ReceiverStream::new(receiver)).into_response())
}
