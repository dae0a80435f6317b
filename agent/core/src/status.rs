//! The pod's status, as `kubectl get` and `describe` show it and controllers
//! decide by it.
//!
//! Everything is computed anew from spec, runtime and memory; what belongs to
//! others in the published status (foreign conditions, QoS class) is kept.

mod conditions;
mod containers;
mod ephemeral;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observed::{Instance, Observed, RunState};
use crate::spec;
use crate::state::PodState;
use crate::step::{self, End};
pub use ephemeral::{EPHEMERAL_MESSAGE, EPHEMERAL_REASON, new_ephemeral};

/// What a status says about the node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// The node's addresses, primary first.
    pub ips: Vec<IpAddr>,
    /// The runtime's name, the scheme of container ids: `containerd`.
    pub runtime_name: String,
}

/// Everything a status is computed from.
struct View<'a> {
    pod: &'a Pod,
    state: &'a PodState,
    observed: &'a Observed,
    node: &'a NodeFacts,
    now: Timestamp,
    /// Why the pod ends, if it does.
    end: Option<End>,
    /// It ends, and nothing of it runs.
    over: bool,
}

/// The status of `pod` now.
pub fn status(
    pod: &Pod,
    state: &PodState,
    observed: &Observed,
    node: &NodeFacts,
    now: Timestamp,
) -> PodStatus {
    let end = step::end(pod, state, observed, now);
    let over = end.is_some()
        && !observed.is_running()
        && !state.in_flight().iter().any(|operation| {
            matches!(
                operation,
                step::Operation::Sandbox | step::Operation::Start(_)
            )
        });
    View {
        pod,
        state,
        observed,
        node,
        now,
        end,
        over,
    }
    .status()
}

impl View<'_> {
    fn status(&self) -> PodStatus {
        let mut status = self.state.api_status.clone();
        status.observed_generation = self.pod.metadata.generation;
        status.start_time = Some(seconds(self.state.start_time));
        status.qos_class = status
            .qos_class
            .or_else(|| Some(crate::qos::class(self.pod).to_string()));
        self.addresses(&mut status);
        let init = spec::init_containers(self.pod);
        status.init_container_statuses =
            (!init.is_empty()).then(|| init.iter().map(|c| self.container(c, true)).collect());
        status.container_statuses = Some(
            spec::containers(self.pod)
                .iter()
                .map(|c| self.container(c, false))
                .collect(),
        );
        status.ephemeral_container_statuses = ephemeral::statuses(self.pod);
        self.phase(&mut status);
        self.conditions(&mut status);
        status
    }

    fn addresses(&self, status: &mut PodStatus) {
        let hosts: Vec<String> = self.node.ips.iter().map(ToString::to_string).collect();
        if let Some(first) = hosts.first() {
            status.host_ip = Some(first.clone());
            status.host_ips = Some(hosts.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
        }
        let sandbox = self.observed.newest_sandbox();
        let ips = match sandbox {
            None => Vec::new(),
            Some(_) if spec::host_network(self.pod) => hosts,
            Some(sandbox) => sandbox.ips.clone(),
        };
        // A stopped sandbox has no addresses; the published ones stay.
        if let Some(first) = ips.first() {
            status.pod_ip = Some(first.clone());
            status.pod_ips = Some(ips.iter().map(|ip| PodIP { ip: ip.clone() }).collect());
        }
    }

    fn phase(&self, status: &mut PodStatus) {
        let published = status.phase.clone();
        if let Some("Failed" | "Succeeded") = published.as_deref() {
            return;
        }
        if let Some(rejection) = &self.state.rejected {
            status.phase = Some("Failed".into());
            status.reason = Some(rejection.reason.into());
            status.message = Some(format!("Pod was rejected: {}", rejection.message));
            return;
        }
        if self.end == Some(End::Deadline) && self.over {
            status.phase = Some("Failed".into());
            status.reason = Some("DeadlineExceeded".into());
            status.message =
                Some("Pod was active on the node longer than the specified deadline".into());
            return;
        }
        status.phase = Some(
            if self.over {
                self.last_phase()
            } else {
                self.running_phase()
            }
            .into(),
        );
    }

    /// The phase of a pod of which nothing runs any more.
    fn last_phase(&self) -> &'static str {
        let ended_well = |container: &Container| {
            self.latest(container)
                .is_some_and(|c| c.state == RunState::Exited && c.exit_code == 0)
        };
        let apps = spec::containers(self.pod);
        if !apps.is_empty() && apps.iter().all(ended_well) {
            "Succeeded"
        } else {
            "Failed"
        }
    }

    /// The phase of a pod that is still at work.
    fn running_phase(&self) -> &'static str {
        let all_started = spec::containers(self.pod)
            .iter()
            .all(|c| self.latest(c).is_some());
        if all_started && self.is_initialized() {
            "Running"
        } else {
            "Pending"
        }
    }

    /// The newest instance that was started; one that is being made is no news yet.
    fn latest(&self, container: &Container) -> Option<&Instance> {
        self.observed.latest_started(&container.name)
    }

    /// All init containers have succeeded.
    fn is_initialized(&self) -> bool {
        let app_exists = spec::containers(self.pod)
            .iter()
            .any(|c| self.latest(c).is_some());
        app_exists || self.unfinished_init().is_empty()
    }

    fn unfinished_init(&self) -> Vec<&str> {
        spec::init_containers(self.pod)
            .iter()
            .filter(|container| {
                !self
                    .latest(container)
                    .is_some_and(|c| c.state == RunState::Exited && c.exit_code == 0)
            })
            .map(|container| container.name.as_str())
            .collect()
    }

    fn published(&self, name: &str) -> Option<&ContainerStatus> {
        let status = &self.state.api_status;
        status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .flatten()
            .find(|status| status.name == name)
    }
}

/// The API keeps whole seconds.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
