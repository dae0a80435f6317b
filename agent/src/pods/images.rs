//! Brings an image onto the node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use seaway_agent_core::image::{self, PullPolicy};
use seaway_agent_core::registry::{self, Credentials};
use seaway_agent_core::security::ImageUser;
use seaway_agent_core::spec;
use seaway_agent_core::state::StartFailure;
use seaway_agent_cri::{CriError, v1};
use tokio::time::Instant;

use super::{Shared, chain};
use crate::objects::EventType;

/// An image that is on the node.
#[derive(Debug)]
pub(super) struct PresentImage {
    /// What containers are created with.
    pub(super) image_ref: String,
    pub(super) user: ImageUser,
}

/// Makes the image of `container` present, as its pull policy says.
pub(super) async fn ensure(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    sandbox: &v1::PodSandboxConfig,
) -> Result<PresentImage, StartFailure> {
    let name = container.image.as_deref().unwrap_or_default();
    let Some(reference) = image::normalized(name) else {
        let message = format!(
            "Failed to apply default image tag \"{name}\": couldn't parse image name \"{name}\": invalid reference format"
        );
        warn(shared, pod, container, "InspectFailed", message.clone());
        return Err(failure("InvalidImageName", message));
    };
    let policy = image::pull_policy(container.image_pull_policy.as_deref(), name);
    let present = present(shared, pod, container, &reference).await?;
    match (present, policy) {
        (Some(image), PullPolicy::IfNotPresent | PullPolicy::Never) => {
            let message = format!("Container image \"{name}\" already present on machine");
            shared.container_event(pod, &container.name, EventType::Normal, "Pulled", message);
            Ok(image)
        }
        (None, PullPolicy::Never) => {
            let message =
                format!("Container image \"{name}\" is not present with pull policy of Never");
            warn(shared, pod, container, "ErrImageNeverPull", message.clone());
            Err(failure("ErrImageNeverPull", message))
        }
        (_, PullPolicy::Always | PullPolicy::IfNotPresent) => {
            pull(shared, pod, container, sandbox, &reference, policy).await
        }
    }
}

async fn present(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    reference: &str,
) -> Result<Option<PresentImage>, StartFailure> {
    match shared.cri.image_status(reference).await {
        Ok(image) => Ok(image.map(|image| PresentImage {
            user: ImageUser {
                uid: image.uid.map(|uid| uid.value),
                name: image.username,
            },
            image_ref: image.id,
        })),
        Err(error) => {
            let message = format!("Failed to inspect image \"{reference}\": {}", chain(&error));
            warn(shared, pod, container, "InspectFailed", message.clone());
            Err(failure("ImageInspectError", message))
        }
    }
}

async fn pull(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    sandbox: &v1::PodSandboxConfig,
    reference: &str,
    policy: PullPolicy,
) -> Result<PresentImage, StartFailure> {
    let name = container.image.as_deref().unwrap_or_default();
    let message = format!("Pulling image \"{name}\"");
    shared.container_event(pod, &container.name, EventType::Normal, "Pulling", message);
    let asked = Instant::now();
    let _permit = shared
        .pulls
        .acquire()
        .await
        .expect("the semaphore is never closed");
    // Another pod may have brought it while this one waited for its turn.
    if policy == PullPolicy::IfNotPresent
        && let Some(image) = present(shared, pod, container, reference).await?
    {
        let message = format!("Container image \"{name}\" already present on machine");
        shared.container_event(pod, &container.name, EventType::Normal, "Pulled", message);
        return Ok(image);
    }
    let begun = Instant::now();
    let credentials = credentials(shared, pod, reference).await;
    if let Err(error) = pull_with(shared, reference, credentials, sandbox).await {
        let why = error.message();
        let message = format!("Failed to pull image \"{name}\": {why}");
        warn(shared, pod, container, "Failed", message);
        warn(
            shared,
            pod,
            container,
            "Failed",
            "Error: ErrImagePull".into(),
        );
        return Err(failure("ErrImagePull", why));
    }
    let pulled = shared.cri.image_status(reference).await;
    let size = pulled
        .as_ref()
        .ok()
        .and_then(|i| i.as_ref())
        .map_or(0, |image| image.size);
    let message = format!(
        "Successfully pulled image \"{name}\" in {:.3}s ({:.3}s including waiting). Image size: {size} bytes.",
        begun.elapsed().as_secs_f64(),
        asked.elapsed().as_secs_f64(),
    );
    shared.container_event(pod, &container.name, EventType::Normal, "Pulled", message);
    present(shared, pod, container, reference)
        .await?
        .ok_or_else(|| {
            failure(
                "ImageInspectError",
                format!("image {reference} vanished after its pull"),
            )
        })
}

/// Tries every credential that fits, then none.
async fn pull_with(
    shared: &Shared,
    reference: &str,
    credentials: Vec<Credentials>,
    sandbox: &v1::PodSandboxConfig,
) -> Result<String, CriError> {
    for credentials in credentials {
        let auth = v1::AuthConfig {
            username: credentials.username,
            password: credentials.password,
            auth: credentials.auth,
            server_address: credentials.server,
            identity_token: credentials.identity_token,
            registry_token: String::new(),
        };
        if let Ok(done) = shared
            .cri
            .pull_image(reference, Some(auth), sandbox.clone())
            .await
        {
            return Ok(done);
        }
    }
    shared
        .cri
        .pull_image(reference, None, sandbox.clone())
        .await
}

async fn credentials(shared: &Shared, pod: &Pod, reference: &str) -> Vec<Credentials> {
    let names = pod
        .spec
        .as_ref()
        .and_then(|s| s.image_pull_secrets.as_deref())
        .unwrap_or_default();
    let mut secrets: Vec<Secret> = Vec::new();
    let mut missing = Vec::new();
    for secret in names {
        match shared
            .objects
            .secret(spec::namespace(pod), &secret.name)
            .await
        {
            Ok(found) => secrets.push(found),
            Err(_error) => missing.push(secret.name.clone()),
        }
    }
    if !missing.is_empty() {
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
            missing.join(", ")
        );
        let reason = "FailedToRetrieveImagePullSecret";
        shared.event(pod, EventType::Warning, reason, message);
    }
    registry::credentials(&secrets, reference)
}

fn warn(shared: &Shared, pod: &Pod, container: &Container, reason: &'static str, text: String) {
    shared.container_event(pod, &container.name, EventType::Warning, reason, text);
}

fn failure(reason: &'static str, message: String) -> StartFailure {
    StartFailure {
        reason,
        message,
        at: Timestamp::now(),
        announced: false,
    }
}
