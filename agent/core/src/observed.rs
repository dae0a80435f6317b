//! One pod as the container runtime shows it.

use jiff::Timestamp;

/// A container's state in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Created, never started.
    Created,
    /// Has a process.
    Running,
    /// Its process ended.
    Exited,
    /// The runtime lost track of it.
    Unknown,
}

/// One instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The runtime's id.
    pub id: String,
    /// The sandbox it is in.
    pub sandbox_id: String,
    /// The container's name in the spec.
    pub name: String,
    /// How often it was started before: 0 for the first instance.
    pub attempt: u32,
    /// State.
    pub state: RunState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When its process ended.
    pub finished_at: Option<Timestamp>,
    /// Of the ended process.
    pub exit_code: i32,
    /// The runtime's reason: `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// The termination message, or the runtime's message.
    pub message: String,
    /// The image as the spec named it.
    pub image: String,
    /// The image as the runtime identifies it.
    pub image_ref: String,
    /// [`crate::spec::container_hash`] of the spec it was made from.
    pub hash: String,
    /// Where the runtime writes its output.
    pub log_path: String,
}

/// One instance of the pod's sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// 0 for the first one.
    pub attempt: u32,
    /// It runs and has its network.
    pub ready: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its addresses, primary first; none for the node's network.
    pub ips: Vec<String>,
}

/// Everything of one pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// In no order.
    pub sandboxes: Vec<Sandbox>,
    /// In no order.
    pub containers: Vec<Instance>,
}

impl Observed {
    /// The newest instance of a container, in whatever sandbox.
    pub fn latest(&self, name: &str) -> Option<&Instance> {
        self.instances(name)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The newest instance that has, or had, a process.
    pub fn latest_started(&self, name: &str) -> Option<&Instance> {
        self.instances(name)
            .filter(|c| c.state != RunState::Created)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The instance before this one.
    pub fn before(&self, instance: &Instance) -> Option<&Instance> {
        let rank = |c: &Instance| (c.attempt, c.created_at);
        self.instances(&instance.name)
            .filter(|c| c.id != instance.id && rank(c) <= rank(instance))
            .max_by_key(|c| rank(c))
    }

    /// The newest instance of a container in one sandbox.
    pub fn latest_in(&self, sandbox_id: &str, name: &str) -> Option<&Instance> {
        self.instances(name)
            .filter(|c| c.sandbox_id == sandbox_id)
            .max_by_key(|c| (c.attempt, c.created_at))
    }

    /// All instances of a container.
    pub fn instances<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a Instance> + use<'a, 'n> {
        self.containers.iter().filter(move |c| c.name == name)
    }

    /// The newest sandbox.
    pub fn newest_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes
            .iter()
            .max_by_key(|s| (s.attempt, s.created_at))
    }

    /// Whether anything has, or may have, a process.
    pub fn is_running(&self) -> bool {
        self.containers
            .iter()
            .any(|c| matches!(c.state, RunState::Running | RunState::Unknown))
    }
}
