//! Brings a pod's status to the source: the newest one, as often as it changes, and
//! never in the way of the pod.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use seaway_agent_core::spec;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::chain;
use crate::objects::{ObjectError, Objects};

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Writes every new value of `statuses` for `pod` until the sender is gone.
pub(super) async fn publish(
    objects: Arc<dyn Objects>,
    pod: Pod,
    mut statuses: watch::Receiver<Option<PodStatus>>,
) {
    let mut delay = FIRST_RETRY;
    while statuses.changed().await.is_ok() {
        loop {
            let Some(status) = statuses.borrow_and_update().clone() else {
                break;
            };
            match objects.write_status(&pod, status).await {
                Ok(()) => {
                    delay = FIRST_RETRY;
                    break;
                }
                Err(ObjectError::NotFound { .. }) => {
                    debug!(pod = %spec::key(&pod), "Status of a pod that is gone");
                    return;
                }
                Err(error) => {
                    warn!(pod = %spec::key(&pod), error = %chain(&error), "Status not written");
                }
            }
            // A newer status goes out with the retry, not before it: the source is
            // in trouble.
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }
}
