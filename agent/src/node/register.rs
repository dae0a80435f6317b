//! Makes the Node object exist with the labels it should have.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tracing::{info, warn};

use super::facts::Facts;
use super::{NodeKeeper, REQUEST_TIMEOUT};
use crate::api::error::{Chain, is_conflict, within};
use crate::config::NodeConfig;

/// The controller manager reads it: we attach no volumes ourselves.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// First pause between attempts; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between attempts, as in kubelet.
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

/// What the Node is registered with, besides what the machine is.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Labels from the command line.
    pub labels: Vec<(String, String)>,
    /// Port of the HTTPS API.
    pub port: u16,
}

impl NodeKeeper {
    /// Tries until the Node object exists; returns it as the API server has it.
    pub(super) async fn register(&self) -> Node {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_register().await {
                Ok(node) => {
                    info!(node = self.config.name, "Registered node");
                    return node;
                }
                Err(error) => warn!(
                    node = self.config.name,
                    error = %Chain(&error),
                    retry_in = ?pause,
                    "Could not register node"
                ),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_register(&self) -> Result<Node, kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        let wanted = initial_node(&self.config, &self.registration.labels);
        match within(REQUEST_TIMEOUT, api.create(&PostParams::default(), &wanted)).await {
            Err(error) if is_conflict(&error) => {}
            other => return other,
        }
        let known = within(REQUEST_TIMEOUT, api.get(&self.config.name)).await?;
        if has_all(&known.metadata, &wanted.metadata) {
            return Ok(known);
        }
        // Merged: labels of others survive.
        let patch = Patch::Merge(json!({"metadata": {
            "labels": wanted.metadata.labels,
            "annotations": wanted.metadata.annotations,
        }}));
        within(
            REQUEST_TIMEOUT,
            api.patch(&self.config.name, &PatchParams::default(), &patch),
        )
        .await
    }
}

/// The Node as it is created; its status comes with the first report.
pub fn initial_node(config: &NodeConfig, labels: &[(String, String)]) -> Node {
    let arch = Facts::read(&config.root_dir).architecture;
    let ours = [
        ("kubernetes.io/hostname", config.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let ours = ours.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node {
        metadata: ObjectMeta {
            name: Some(config.name.clone()),
            labels: Some(labels.iter().cloned().chain(ours).collect()),
            annotations: Some(BTreeMap::from([(
                CONTROLLER_ATTACHES.into(),
                "true".into(),
            )])),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

fn has_all(known: &ObjectMeta, wanted: &ObjectMeta) -> bool {
    let has = |known: &Option<BTreeMap<String, String>>, wanted: &Option<BTreeMap<_, _>>| {
        wanted.iter().flatten().all(|(key, value)| {
            known
                .as_ref()
                .is_some_and(|known| known.get(key) == Some(value))
        })
    };
    has(&known.labels, &wanted.labels) && has(&known.annotations, &wanted.annotations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::status::tests::config;

    #[test]
    fn labels_are_ours_and_the_command_lines() {
        let node = initial_node(&config(), &[("disk".into(), "ssd".into())]);
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["kubernetes.io/hostname"], "n1");
        assert_eq!(labels["kubernetes.io/os"], "linux");
        assert_eq!(labels["disk"], "ssd");
        assert_eq!(
            node.metadata.annotations.unwrap()[CONTROLLER_ATTACHES],
            "true"
        );
    }

    #[test]
    fn labels_of_others_need_no_patch() {
        let wanted = initial_node(&config(), &[]);
        let mut known = wanted.metadata.clone();
        known
            .labels
            .as_mut()
            .unwrap()
            .insert("theirs".into(), "x".into());
        assert!(has_all(&known, &wanted.metadata));
        known
            .labels
            .as_mut()
            .unwrap()
            .insert("kubernetes.io/os".into(), "plan9".into());
        assert!(!has_all(&known, &wanted.metadata));
    }
}
