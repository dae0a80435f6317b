//! Starts one container: image, environment, files, create, start.

use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use seaway_agent_core::container::{self, OwnFiles};
use seaway_agent_core::env::{self, Sources};
use seaway_agent_core::state::StartFailure;
use seaway_agent_core::{hosts, quantity, security, spec};
use seaway_agent_cri::v1;

use super::images::{self, PresentImage};
use super::operations::{Context, Outcome};
use super::{chain, convert, files};
use crate::objects::{EventType, ObjectError};

/// Which instance of which container, and where.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) name: &'a str,
    pub(super) attempt: u32,
    pub(super) sandbox_id: &'a str,
}

pub(super) async fn start(context: &Context, start: Start<'_>) -> Outcome {
    let Some(container) = spec::container(&context.pod, start.name) else {
        return Outcome::Failed;
    };
    let sandbox = context
        .observed
        .sandboxes
        .iter()
        .find(|s| s.id == start.sandbox_id);
    let sandbox_config = match context
        .sandbox_config(sandbox.map_or(0, |s| s.attempt))
        .await
    {
        Ok((config, _warning)) => convert::sandbox(&config),
        Err(message) => return config_failure(context, container, message),
    };
    // A pull may take minutes; a pod that ends does not wait for it.
    let image = tokio::select! {
        () = context.cancel.cancelled() => return Outcome::Cancelled,
        image = images::ensure(&context.shared, &context.pod, container, &sandbox_config) => image,
    };
    let image = match image {
        Ok(image) => image,
        Err(failure) => return Outcome::StartFailed(failure),
    };
    let config = match container_config(context, container, &start, &image).await {
        Ok(config) => config,
        Err(message) => return config_failure(context, container, message),
    };
    if context.cancel.is_cancelled() {
        return Outcome::Cancelled;
    }
    Box::pin(create_and_start(
        context,
        container,
        &start,
        config,
        sandbox_config,
    ))
    .await
}

async fn create_and_start(
    context: &Context,
    container: &Container,
    start: &Start<'_>,
    config: v1::ContainerConfig,
    sandbox_config: v1::PodSandboxConfig,
) -> Outcome {
    let (shared, pod) = (&context.shared, &context.pod);
    let object = format!("{}/{}", spec::key(pod), container.name);
    let created = shared
        .cri
        .create_container(&object, start.sandbox_id, config, sandbox_config)
        .await;
    let id = match created {
        Ok(id) => id,
        Err(error) => {
            let message = error.message();
            fail_event(context, container, &message);
            return failed("CreateContainerError", message);
        }
    };
    let message = "Container created".to_owned();
    shared.container_event(pod, &container.name, EventType::Normal, "Created", message);
    if let Err(error) = shared.cri.start_container(&id).await {
        let message = error.message();
        fail_event(context, container, &message);
        return failed("RunContainerError", message);
    }
    let message = "Container started".to_owned();
    shared.container_event(pod, &container.name, EventType::Normal, "Started", message);
    Outcome::Done
}

async fn container_config(
    context: &Context,
    container: &Container,
    start: &Start<'_>,
    image: &PresentImage,
) -> Result<v1::ContainerConfig, String> {
    let pod = &context.pod;
    security::check_non_root(pod, container, &image.user).map_err(|error| error.to_string())?;
    let sources = sources(context, container).await?;
    let env = env::resolve(pod, container, &sources).map_err(|error| chain(&error))?;
    let dir = context.shared.config.pods_dir.join(spec::uid(pod));
    let hosts = files::hosts_file(&dir);
    let termination = files::termination_file(&dir, &container.name, start.attempt);
    write_files(context, container, &hosts, &termination)?;
    let own = OwnFiles {
        hosts: &hosts,
        termination: &termination,
    };
    let mounts =
        container::mounts(container, &context.volumes, own).map_err(|error| error.to_string())?;
    let node = context.shared.objects.node();
    let memory = node
        .and_then(|node| node.status?.capacity?.remove("memory"))
        .and_then(|memory| quantity::bytes(&memory).ok())
        .unwrap_or(0);
    let mut config = container::config(
        pod,
        container,
        start.attempt,
        &image.image_ref,
        env,
        mounts,
        memory,
    );
    let floor = context.shared.oom_floor;
    config.resources = config.resources.with_oom_floor(floor);
    Ok(convert::container(config))
}

/// Fetches what the environment refers to. What does not exist is left out: whether
/// that is an error is decided where the reference is.
async fn sources(context: &Context, container: &Container) -> Result<Sources, String> {
    let objects = &context.shared.objects;
    let namespace = spec::namespace(&context.pod);
    let references = env::references(container);
    let node = objects.node();
    let mut sources = Sources {
        services: objects.services(namespace),
        allocatable: node
            .and_then(|node| node.status?.allocatable)
            .unwrap_or_default(),
        ..Sources::default()
    };
    for name in references.config_maps {
        match objects.config_map(namespace, &name).await {
            Ok(map) => drop(sources.config_maps.insert(name, map)),
            Err(ObjectError::NotFound { .. }) => {}
            Err(error) => return Err(chain(&error)),
        }
    }
    for name in references.secrets {
        match objects.secret(namespace, &name).await {
            Ok(secret) => drop(sources.secrets.insert(name, secret)),
            Err(ObjectError::NotFound { .. }) => {}
            Err(error) => return Err(chain(&error)),
        }
    }
    Ok(sources)
}

fn write_files(
    context: &Context,
    container: &Container,
    hosts_path: &Path,
    termination: &Path,
) -> Result<(), String> {
    let pod = &context.pod;
    let fail = |path: &Path, error: &std::io::Error| format!("write {}: {error}", path.display());
    let text = if spec::host_network(pod) {
        hosts::host_network_hosts(
            pod,
            &std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
        )
    } else {
        let ips = context
            .observed
            .newest_sandbox()
            .map(|s| s.ips.clone())
            .unwrap_or_default();
        hosts::pod_hosts(pod, &ips, &context.shared.config.cluster_domain)
    };
    files::write(hosts_path, &text).map_err(|error| fail(hosts_path, &error))?;
    files::create_termination_file(termination).map_err(|error| fail(termination, &error))?;
    let logs = context.shared.log_dirs.path(pod);
    let made = context.shared.log_dirs.create(pod);
    let made = made.and_then(|dir| std::fs::create_dir_all(dir.join(&container.name)));
    made.map_err(|error| fail(&logs, &error))
}

fn config_failure(context: &Context, container: &Container, message: String) -> Outcome {
    fail_event(context, container, &message);
    failed("CreateContainerConfigError", message)
}

fn failed(reason: &'static str, message: String) -> Outcome {
    Outcome::StartFailed(StartFailure {
        reason,
        message,
        at: Timestamp::now(),
        announced: false,
    })
}

fn fail_event(context: &Context, container: &Container, message: &str) {
    let text = format!("Error: {message}");
    let name = &container.name;
    context
        .shared
        .container_event(&context.pod, name, EventType::Warning, "Failed", text);
}
