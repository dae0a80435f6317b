//! The node's heartbeat.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::api::error::{Chain, is_not_found, within};

/// Where the node controller looks for it.
const NAMESPACE: &str = "kube-node-lease";

/// After this without renewal the node counts as gone: `nodeLeaseDurationSeconds`.
const DURATION_SECONDS: i32 = 40;

/// A quarter of the duration, so three renewals may fail.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Shorter than the pause between renewals: a hung connection costs one of them
/// (kubernetes/kubernetes#48638, #121793).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);

/// Pauses after failures: doubled from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(7));

/// Renews the Lease of `node` until `shutdown`. It begins when `uid` says that the
/// Node is registered, and belongs to the Node of that UID.
pub(crate) async fn keep_lease(
    client: Client,
    node: String,
    mut uid: watch::Receiver<Option<String>>,
    shutdown: CancellationToken,
) {
    let api: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let keep = async {
        if uid.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut failed = None;
        loop {
            let owner = uid.borrow().clone().unwrap_or_default();
            let lease = lease(&node, owner, Timestamp::now());
            let pause = match renew(&api, &node, lease).await {
                Ok(_) => {
                    failed = None;
                    jittered(RENEW_EVERY)
                }
                Err(error) => {
                    let pause = failed.map_or(PAUSES.0, |last: Duration| (last * 2).min(PAUSES.1));
                    warn!(node, error = %Chain(&error), retry_in = ?pause, "Could not renew lease");
                    failed = Some(pause);
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        () = keep => {}
        () = shutdown.cancelled() => {}
    }
}

async fn renew(api: &Api<Lease>, node: &str, lease: Lease) -> Result<Lease, kube::Error> {
    let patch = Patch::Merge(&lease);
    match within(
        REQUEST_TIMEOUT,
        api.patch(node, &PatchParams::default(), &patch),
    )
    .await
    {
        Err(error) if is_not_found(&error) => {
            debug!(node, "Creating lease");
            within(REQUEST_TIMEOUT, api.create(&PostParams::default(), &lease)).await
        }
        other => other,
    }
}

fn lease(node: &str, owner_uid: String, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.to_owned(),
                uid: owner_uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

/// Up to 4 % more, so that a cluster's nodes do not beat in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + 0.04 * rand::random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_names_holder_and_owner() {
        let now = Timestamp::from_second(5).unwrap();
        let lease = serde_json::to_value(lease("n1", "u1".into(), now)).unwrap();
        assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(lease["spec"]["holderIdentity"], "n1");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(lease["spec"]["renewTime"], "1970-01-01T00:00:05.000000Z");
    }

    #[test]
    fn jitter_is_small() {
        for _ in 0..100 {
            let pause = jittered(RENEW_EVERY);
            assert!(
                pause >= RENEW_EVERY && pause <= RENEW_EVERY.mul_f64(1.04),
                "{pause:?}"
            );
        }
    }
}
