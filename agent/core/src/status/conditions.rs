//! The pod's conditions: ours are computed, all others are kept.

use k8s_openapi::api::core::v1::{PodCondition, PodStatus};

use super::{View, seconds};
use crate::spec;

/// What a condition says.
#[derive(Clone)]
struct Verdict {
    kind: &'static str,
    met: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn yes(kind: &'static str) -> Self {
        Self {
            kind,
            met: true,
            reason: None,
            message: None,
        }
    }

    fn no(kind: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self {
            kind,
            met: false,
            reason: Some(reason),
            message,
        }
    }
}

impl View<'_> {
    pub(super) fn conditions(&self, status: &mut PodStatus) {
        let published = status.conditions.take().unwrap_or_default();
        let containers = containers_ready(status);
        let ready = self.ready(&containers, &published);
        let verdicts = [
            self.has_network(),
            self.initialized(status),
            ready,
            containers,
        ];
        let mut conditions: Vec<PodCondition> = verdicts
            .into_iter()
            .map(|verdict| self.condition(verdict, &published))
            .collect();
        if !published.iter().any(|c| c.type_ == "PodScheduled") {
            conditions.push(self.condition(Verdict::yes("PodScheduled"), &published));
        }
        let ours: Vec<String> = conditions.iter().map(|c| c.type_.clone()).collect();
        conditions.extend(published.into_iter().filter(|c| !ours.contains(&c.type_)));
        status.conditions = Some(conditions);
    }

    fn condition(&self, verdict: Verdict, published: &[PodCondition]) -> PodCondition {
        let status = if verdict.met { "True" } else { "False" };
        let before = published.iter().find(|c| c.type_ == verdict.kind);
        let since = before
            .filter(|c| c.status == status)
            .and_then(|c| c.last_transition_time.clone())
            .unwrap_or_else(|| seconds(self.now));
        PodCondition {
            type_: verdict.kind.into(),
            status: status.into(),
            last_transition_time: Some(since),
            last_probe_time: None,
            observed_generation: self.pod.metadata.generation,
            reason: verdict.reason.map(Into::into),
            message: verdict.message,
        }
    }

    fn has_network(&self) -> Verdict {
        let kind = "PodReadyToStartContainers";
        let ready = self.observed.newest_sandbox().is_some_and(|sandbox| {
            sandbox.ready && (spec::host_network(self.pod) || !sandbox.ips.is_empty())
        });
        Verdict {
            kind,
            met: ready,
            reason: None,
            message: None,
        }
    }

    fn initialized(&self, status: &PodStatus) -> Verdict {
        let kind = "Initialized";
        if self.is_initialized() {
            let completed = status.phase.as_deref() == Some("Succeeded");
            let reason = completed.then_some("PodCompleted");
            return Verdict {
                kind,
                met: true,
                reason,
                message: None,
            };
        }
        let names = self.unfinished_init().join(" ");
        let message = format!("containers with incomplete status: [{names}]");
        Verdict::no(kind, "ContainersNotInitialized", Some(message))
    }

    fn ready(&self, containers: &Verdict, published: &[PodCondition]) -> Verdict {
        let kind = "Ready";
        if !containers.met {
            return Verdict {
                kind,
                ..containers.clone()
            };
        }
        let gates = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.readiness_gates.as_ref());
        let closed: Vec<&str> = gates
            .into_iter()
            .flatten()
            .map(|gate| gate.condition_type.as_str())
            .filter(|gate| {
                !published
                    .iter()
                    .any(|c| c.type_ == *gate && c.status == "True")
            })
            .collect();
        if closed.is_empty() {
            return Verdict::yes(kind);
        }
        let message = closed
            .iter()
            .map(|gate| format!("the status of pod readiness gate \"{gate}\" is not \"True\""))
            .collect::<Vec<_>>()
            .join(", ");
        Verdict::no(kind, "ReadinessGatesNotReady", Some(message))
    }
}

fn containers_ready(status: &PodStatus) -> Verdict {
    let kind = "ContainersReady";
    match status.phase.as_deref() {
        Some("Succeeded") => return Verdict::no(kind, "PodCompleted", None),
        Some("Failed") => return Verdict::no(kind, "PodFailed", None),
        _ => {}
    }
    let unready: Vec<&str> = status
        .container_statuses
        .iter()
        .flatten()
        .filter(|c| !c.ready)
        .map(|c| c.name.as_str())
        .collect();
    if unready.is_empty() {
        return Verdict::yes(kind);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict::no(kind, "ContainersNotReady", Some(message))
}
