//! What the container runtime says about itself.

/// The runtime's own view, refreshed by whoever talks CRI; node status reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// The runtime answers and its `RuntimeReady` condition is true.
    pub ready: bool,
    /// The runtime's `NetworkReady` condition is true: a CNI configuration is loaded.
    pub network_ready: bool,
    /// Why not, for people; empty when all is well.
    pub message: String,
    /// `containerd`; empty while unknown.
    pub runtime_name: String,
    /// `2.2.9`; empty while unknown.
    pub runtime_version: String,
}

impl RuntimeStatus {
    /// Whether pods can run here.
    pub fn all_ready(&self) -> bool {
        self.ready && self.network_ready
    }

    /// `containerd://2.2.9`, as `kubectl get nodes -o wide` shows it.
    pub fn version(&self) -> String {
        if self.runtime_name.is_empty() {
            return String::new();
        }
        format!(
            "{}://{}",
            self.runtime_name,
            self.runtime_version.trim_start_matches('v')
        )
    }
}
