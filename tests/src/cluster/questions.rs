//! What tests ask a cluster again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Cluster, Node, until};

/// A Deployment that answers HTTP on port 8080 (agnhost's `netexec`: `/hostname`, `/clientip`),
/// its replicas on different nodes, and a Service for it on port 80.
#[must_use]
pub fn web_deployment(name: &str, image: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 2
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {{matchLabels: {{app: {name}}}}}
      containers:
      - name: web
        image: {image}
        args: [netexec, --http-port=8080]
        ports: [{{containerPort: 8080}}]
        readinessProbe:
          httpGet: {{path: /healthz, port: 8080}}
          periodSeconds: 1
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports:
  - {{port: 80, targetPort: 8080}}
"
    )
}

impl Cluster {
    /// Waits until a Deployment has all its replicas available.
    ///
    /// # Errors
    /// When it has not in time, with what keeps its pods (`app` is its name), or a program of
    /// the cluster has ended.
    pub fn wait_available(&self, deployment: &str, limit: Duration) -> Result<()> {
        let what = format!("deployment {deployment} is available");
        let waited = until(&what, limit, || {
            self.check_alive()?;
            let found = self.get(&["deployment", deployment])?;
            let wanted = found["spec"]["replicas"].as_u64().unwrap_or(1);
            let status = &found["status"];
            let seen = status["observedGeneration"] == found["metadata"]["generation"];
            let available = status["availableReplicas"].as_u64().unwrap_or(0);
            let total = status["replicas"].as_u64().unwrap_or(0);
            Ok((seen && available == wanted && total == wanted).then_some(()))
        });
        waited.with_context(|| self.what_keeps(&format!("app={deployment}")))
    }

    /// Of the pods with a label: every condition that is not met, and why.
    fn what_keeps(&self, label: &str) -> String {
        let pods = match self.get(&["pods", "-l", label]) {
            Ok(pods) => pods,
            Err(error) => return format!("{error:#}"),
        };
        let mut all = vec![format!("pods with {label}:")];
        for pod in pods["items"].as_array().into_iter().flatten() {
            let conditions = pod["status"]["conditions"].as_array();
            for one in conditions.into_iter().flatten() {
                if one["status"] == "False" {
                    let name = &pod["metadata"]["name"];
                    let words = [name, &one["type"], &one["message"]];
                    let [name, kind, why] = words.map(|word| word.as_str().unwrap_or_default());
                    all.push(format!("{name} is not {kind}: {why};"));
                }
            }
        }
        all.join(" ")
    }

    /// Waits until a pod is Ready.
    ///
    /// # Errors
    /// When it is not in time, or a program of the cluster has ended.
    pub fn wait_ready(&self, pod: &str, limit: Duration) -> Result<()> {
        until(&format!("pod {pod} is Ready"), limit, || {
            self.check_alive()?;
            let found = self.get(&["pod", pod])?;
            let conditions = found["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
            Ok(ready.then_some(()))
        })
    }

    /// Waits until no pod has the label any more.
    ///
    /// # Errors
    /// When one still has in the end, or a program of the cluster has ended.
    pub fn wait_gone(&self, label: &str, limit: Duration) -> Result<()> {
        until(&format!("no pod is {label}"), limit, || {
            self.check_alive()?;
            Ok(self.pods(label)?.is_empty().then_some(()))
        })
    }

    /// The ClusterIP of a Service.
    ///
    /// # Errors
    /// When there is no such Service.
    pub fn cluster_ip(&self, service: &str) -> Result<String> {
        self.kubectl(&[
            "get",
            "service",
            service,
            "-o",
            "jsonpath={.spec.clusterIP}",
        ])
    }

    /// The names of the pods with a label.
    ///
    /// # Errors
    /// Those of `kubectl`.
    pub fn pods(&self, label: &str) -> Result<Vec<String>> {
        let text = self.kubectl(&["get", "pods", "-l", label, "-o", "name"])?;
        Ok(text
            .lines()
            .filter_map(|line| line.strip_prefix("pod/"))
            .map(str::to_owned)
            .collect())
    }

    /// Runs a command in a pod's first container.
    ///
    /// # Errors
    /// Those of `kubectl`, and when the command fails.
    pub fn exec(&self, pod: &str, command: &[&str]) -> Result<String> {
        let words: Vec<&str> = ["exec", pod, "--"].iter().chain(command).copied().collect();
        self.kubectl(&words)
    }
}

impl Node {
    /// Asks `ADDRESS/hostname` from the node itself, each time on a new connection, and returns
    /// all names that were answered.
    ///
    /// # Errors
    /// When one of the connections fails.
    pub fn hosts_behind(&self, address: &str, times: u32) -> Result<BTreeSet<String>> {
        (0..times).map(|_| self.ask(address)).collect()
    }

    /// Asks `ADDRESS/hostname` once.
    ///
    /// # Errors
    /// When it does not answer within two seconds, with what curl says.
    pub fn ask(&self, address: &str) -> Result<String> {
        let url = format!("http://{address}/hostname");
        let mut curl = self.command("curl");
        let output = curl
            .args(["-sS", "--max-time", "2", &url])
            .output()
            .context("start curl")?;
        anyhow::ensure!(
            output.status.success(),
            "{} asks {address}: {}",
            self.name(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Whether a connection from the node itself is refused at once.
    ///
    /// # Errors
    /// When it cannot be tried.
    pub fn is_refused(&self, ip: &str, port: u16) -> Result<bool> {
        // Not curl: it does not say why it cannot connect.
        let mut bash = self.command("timeout");
        bash.args(["2", "bash", "-c", &format!("exec 3<>/dev/tcp/{ip}/{port}")]);
        let output = bash.output().context("start bash")?;
        Ok(String::from_utf8_lossy(&output.stderr).contains("Connection refused"))
    }
}
