//! One thing that happened, and the Event that tells of it.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tracing::{info, warn};

use super::aggregate::Outcome;
use crate::objects::EventType;

/// `source.component` of a node agent's events; users and tests filter on it.
const COMPONENT: &str = "kubelet";

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    pub(super) object: ObjectReference,
    pub(super) event_type: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Occurrence {
    pub(super) fn new(
        object: ObjectReference,
        event_type: EventType,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self {
            object,
            event_type,
            reason,
            message,
        }
    }

    pub(super) fn log(&self) {
        let object = &self.object;
        let name = object.name.as_deref().unwrap_or_default();
        let pod = match object.namespace.as_deref() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        let (reason, message) = (self.reason, self.message.as_str());
        let part = object.field_path.as_deref().unwrap_or_default();
        match self.event_type {
            EventType::Normal => info!(pod, part, reason, message, "Event"),
            EventType::Warning => warn!(pod, part, reason, message, "Event"),
        }
    }

    /// The API object, with what the aggregation of `outcome` says.
    pub(super) fn to_event(&self, node: &str, outcome: &Outcome) -> Event {
        let namespace = self
            .object
            .namespace
            .clone()
            .unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(outcome.name.clone()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: self.object.clone(),
            type_: Some(match self.event_type {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            reason: Some(self.reason.to_owned()),
            message: Some(outcome.message.clone()),
            count: Some(outcome.count),
            first_timestamp: Some(Time(outcome.first)),
            last_timestamp: Some(Time(outcome.last)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(node.to_owned()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(node.to_owned()),
            ..Event::default()
        }
    }
}
