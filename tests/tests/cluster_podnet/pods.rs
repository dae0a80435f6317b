//! The pods of these tests: `one` and `beside` on the first node, `two` on the second.

use std::time::Duration;

use anyhow::{Result, ensure};
use seaway_testbed::cluster::{AGNHOST, Cluster, Pod};

/// For a few pods whose image is there, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Where every pod serves HTTP: `/hostname`, `/clientip`, `/echo`.
pub(crate) const PORT: u16 = 8080;
/// The same port of `one` and `two` on their nodes.
pub(crate) const HOST_PORT: u16 = 8090;

const PODS: [(&str, &str); 3] = [("one", "node-1"), ("two", "node-2"), ("beside", "node-1")];

/// Makes them and a Service `to-NAME` for each, and waits until they are Ready.
pub(crate) fn create(cluster: &Cluster) -> Result<()> {
    for (name, node) in PODS {
        create_one(cluster, name, node, name != "beside")?;
    }
    wait(cluster)
}

/// Waits until all of them are Ready, with an address of each family.
pub(crate) fn wait(cluster: &Cluster) -> Result<()> {
    for (name, _) in PODS {
        cluster.wait_ready(name, PATIENCE)?;
    }
    for pod in all(cluster)? {
        let families = cluster.nodes()[0].ips().len();
        ensure!(pod.ips.len() == families, "{pod:?}");
    }
    Ok(())
}

/// One pod and its Service; it may be there already.
pub(crate) fn create_one(cluster: &Cluster, name: &str, node: &str, host_port: bool) -> Result<()> {
    let host_port = if host_port {
        format!(", hostPort: {HOST_PORT}")
    } else {
        String::new()
    };
    cluster.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{pod: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: {AGNHOST}
    args: [netexec, --http-port={PORT}]
    ports: [{{containerPort: {PORT}{host_port}}}]
    readinessProbe:
      httpGet: {{path: /healthz, port: {PORT}}}
      periodSeconds: 1
---
apiVersion: v1
kind: Service
metadata: {{name: to-{name}}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{pod: {name}}}
  ports:
  - {{port: 80, targetPort: {PORT}}}
"
    ))
}

/// All of them.
pub(crate) fn all(cluster: &Cluster) -> Result<Vec<Pod>> {
    PODS.iter().map(|(name, _)| cluster.pod(name)).collect()
}

/// New pods of the same names.
pub(crate) fn replace(cluster: &Cluster) -> Result<()> {
    delete(cluster)?;
    create(cluster)
}

/// Deletes them and waits until they are gone.
pub(crate) fn delete(cluster: &Cluster) -> Result<()> {
    let names = PODS.map(|(name, _)| name);
    let words = [&["delete", "pod", "--timeout=60s"][..], &names].concat();
    cluster.kubectl(&words).map(drop)
}
