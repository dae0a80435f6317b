//! The latest warning about each pod. With an API server `kubectl describe` shows them;
//! here they are in `seaway-agent get pods --output json`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;

use crate::objects::{EventType, PodEvent};

#[derive(Debug, Default)]
pub(super) struct Warnings {
    by_uid: Mutex<BTreeMap<String, String>>,
}

impl Warnings {
    /// Takes an event in; one that is no warning means that the pod got further.
    pub(super) fn note(&self, event: &PodEvent) {
        let uid = event.pod.metadata.uid.clone().unwrap_or_default();
        let mut by_uid = self.lock();
        match event.event_type {
            EventType::Warning => {
                by_uid.insert(uid, format!("{}: {}", event.reason, event.message));
            }
            EventType::Normal => drop(by_uid.remove(&uid)),
        }
    }

    /// Forgets pods that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|uid, _warning| is_there(uid));
    }

    /// Tells why a container waits where its status does not.
    pub(super) fn explain(&self, pod: &mut Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(warning) = self.lock().get(&uid).cloned() else {
            return;
        };
        let Some(status) = &mut pod.status else {
            return;
        };
        let lists = [
            &mut status.init_container_statuses,
            &mut status.container_statuses,
        ];
        for container in lists.into_iter().flatten().flatten() {
            let state = container.state.as_mut();
            if let Some(waiting) = state.and_then(|state| state.waiting.as_mut()) {
                waiting.message.get_or_insert_with(|| warning.clone());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Pod {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"},
            "status": {"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ContainerCreating"}},
            }]},
        }))
        .unwrap()
    }

    fn event(event_type: EventType) -> PodEvent {
        PodEvent {
            pod: waiting(),
            field_path: None,
            event_type,
            reason: "FailedMount",
            message: "no such ConfigMap".into(),
        }
    }

    fn explained(warnings: &Warnings) -> Option<String> {
        let mut pod = waiting();
        warnings.explain(&mut pod);
        let statuses = pod.status.unwrap().container_statuses.unwrap();
        statuses[0].state.clone().unwrap().waiting.unwrap().message
    }

    #[test]
    fn a_warning_explains_until_the_pod_gets_further() {
        let warnings = Warnings::default();
        assert_eq!(explained(&warnings), None);
        warnings.note(&event(EventType::Warning));
        let message = explained(&warnings);
        assert_eq!(message.as_deref(), Some("FailedMount: no such ConfigMap"));
        warnings.note(&event(EventType::Normal));
        assert_eq!(explained(&warnings), None);
        warnings.note(&event(EventType::Warning));
        warnings.retain(|uid| uid != "u");
        assert_eq!(explained(&warnings), None);
    }
}
