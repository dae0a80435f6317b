//! From registered to Ready: routes to the pods, and waiting for the nodes.

use anyhow::Result;

use super::{Cluster, Node, START_LIMIT, until};

impl Cluster {
    /// Routes from the control plane to the pods, and what stock CNI plugins need.
    ///
    /// # Errors
    /// When a node has no pod CIDR in time, or a program of the cluster has ended.
    pub fn connect_pods(&self) -> Result<()> {
        let mut routes = Vec::new();
        for node in &self.nodes {
            let cidrs = self.pod_cidrs(node)?;
            for (cidr, ip) in cidrs.iter().zip(node.ips()) {
                self.control
                    .netns()
                    .ip(&format!("route replace {cidr} via {ip}"));
                routes.push((node.name(), cidr.clone(), ip));
            }
            node.configure_cni(&cidrs)?;
        }
        for node in &self.nodes {
            for (_, cidr, ip) in routes.iter().filter(|(name, ..)| *name != node.name()) {
                node.route_to_peer(ip, cidr);
            }
        }
        Ok(())
    }

    /// Waits until a node has them, one per family.
    fn pod_cidrs(&self, node: &Node) -> Result<Vec<String>> {
        let what = format!("{} has a pod CIDR", node.name());
        until(&what, START_LIMIT, || {
            self.check_alive()?;
            let path = "jsonpath={.spec.podCIDRs[*]}";
            // Not registered yet is an error of kubectl, and no reason to give up.
            let cidrs = self.kubectl(&["get", "node", node.name(), "-o", path]);
            let cidrs = cidrs.ok().filter(|cidrs| !cidrs.is_empty());
            Ok(cidrs.map(|cidrs| cidrs.split(' ').map(str::to_owned).collect()))
        })
    }

    /// Waits until the first so many nodes are Ready.
    ///
    /// # Errors
    /// When one is not in time, or a program of the cluster has ended.
    pub fn wait_nodes_ready(&self, count: usize) -> Result<()> {
        until("every node is Ready", START_LIMIT, || {
            self.check_alive()?;
            for node in &self.nodes[..count] {
                if !self.is_ready(node)? {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
    }

    /// Whether a node's condition Ready is True; false too when there is no such Node.
    ///
    /// # Errors
    /// Those of `kubectl`.
    pub fn is_ready(&self, node: &Node) -> Result<bool> {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        let words = ["get", "node", node.name(), "--ignore-not-found", "-o", path];
        Ok(self.kubectl(&words)? == "True")
    }
}
