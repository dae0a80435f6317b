//! What the agent says about its pods and Services, and what containerd says about them.

use std::process::Output;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{Node, PATIENCE};
use crate::{bin, wait_until};

/// A pod, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its name; the namespace is `default` in tests.
    pub name: String,
    /// Its phase: Pending, Running, ...
    pub phase: String,
    /// Its address, or empty.
    pub ip: String,
    /// Whether its condition Ready is true.
    pub ready: bool,
    /// How often its containers have been restarted.
    pub restarts: u64,
    /// The ids of its containers, as the runtime knows them.
    pub containers: Vec<String>,
}

/// A Service, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// Its ClusterIP.
    pub cluster_ip: String,
}

impl Node {
    /// `seaway-agent get pods`.
    ///
    /// # Errors
    /// When the agent does not answer, with what was printed.
    pub fn pods(&self) -> Result<Vec<PodView>> {
        Ok(self.get("pods")?.iter().map(pod).collect())
    }

    /// One pod.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn pod(&self, name: &str) -> Result<PodView> {
        let pods = self.pods()?;
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        let reason = format!("pod {name} is not among {names:?}");
        pods.into_iter()
            .find(|pod| pod.name == name)
            .context(reason)
    }

    /// `seaway-agent get services`.
    ///
    /// # Errors
    /// As [`Self::pods`].
    pub fn services(&self) -> Result<Vec<ServiceView>> {
        let services = self.get("services")?;
        Ok(services
            .iter()
            .map(|service| ServiceView {
                name: text(service, "/metadata/name"),
                cluster_ip: text(service, "/spec/clusterIP"),
            })
            .collect())
    }

    /// Waits until exactly these pods are Ready.
    ///
    /// # Errors
    /// When they are not in time, or the agent has ended.
    pub fn wait_ready(&mut self, names: &[&str]) -> Result<Vec<PodView>> {
        let what = format!("pods {names:?} to be Ready");
        self.wait(&what, |node| {
            let pods = match node.pods() {
                Ok(pods) => pods,
                Err(error) => return Ok(Err(format!("{error:#}"))),
            };
            let mut ready: Vec<&str> = pods
                .iter()
                .filter(|pod| pod.ready)
                .map(|pod| pod.name.as_str())
                .collect();
            ready.sort_unstable();
            let mut wanted = names.to_vec();
            wanted.sort_unstable();
            let settled = ready == wanted && pods.len() == wanted.len();
            Ok(if settled {
                Ok(pods)
            } else {
                Err(format!("{pods:?}"))
            })
        })
    }

    /// Waits for something on the node; the end of the agent ends the waiting.
    ///
    /// # Errors
    /// As [`wait_until`].
    pub fn wait<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Result<Result<T, String>>,
    ) -> Result<T> {
        wait_until(PATIENCE, what, || {
            self.agent().running()?;
            look(self)
        })
    }

    /// Runs a program in a pod's first container, by the runtime's own means.
    ///
    /// # Errors
    /// When the pod has no running container.
    pub fn exec(&self, pod: &str, words: &[&str]) -> Result<Output> {
        let view = self.pod(pod)?;
        let Some(container) = view.containers.first() else {
            bail!("pod {pod} has no container: {view:?}");
        };
        // Every execution of a container needs a name that is not in use.
        let exec_id = crate::unique_name("exec");
        let mut command = self.ctr();
        command
            .args(["tasks", "exec", "--exec-id", &exec_id, container])
            .args(words);
        command.output().context("start ctr")
    }

    fn get(&self, what: &str) -> Result<Vec<Value>> {
        let mut command = self.place.command(bin("seaway-agent"));
        let output = command.args(["get", what, "--output", "json"]).output()?;
        if !output.status.success() {
            bail!(
                "seaway-agent get {what}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let list: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("seaway-agent get {what} --output json"))?;
        Ok(list["items"]
            .as_array()
            .context("a List has items")?
            .clone())
    }
}

fn pod(pod: &Value) -> PodView {
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).cloned();
    let conditions = list("/status/conditions").unwrap_or_default();
    let containers = list("/status/containerStatuses").unwrap_or_default();
    PodView {
        name: text(pod, "/metadata/name"),
        phase: text(pod, "/status/phase"),
        ip: text(pod, "/status/podIP"),
        ready: conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
        restarts: containers
            .iter()
            .filter_map(|status| status["restartCount"].as_u64())
            .sum(),
        containers: containers.iter().map(container_id).collect(),
    }
}

/// `containerd://ID` without what is before the ID.
fn container_id(status: &Value) -> String {
    let id = text(status, "/containerID");
    id.rsplit_once("://")
        .map_or(id.clone(), |(_, id)| id.to_owned())
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
