//! Repetition and noise: what becomes an event, what raises a counter, what is dropped.
//!
//! The numbers are those of client-go's `tools/record/events_cache.go`.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::record::Occurrence;

/// Between two writes: kubelet's 50 per second.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Objects and events remembered; more than a full node has at once.
const REMEMBERED: usize = 4096;

/// More different messages of one reason than this are shown as one event.
const SIMILAR: usize = 10;

/// Within this time.
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// How many events an object may have at once,
const BURST: f64 = 25.0;

/// and how long it takes until it may have one more.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// What to write for an occurrence.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) occurrence: Occurrence,
    pub(super) name: String,
    pub(super) message: String,
    /// More than 1: the event exists already.
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// Object, its part, reason, type: what makes events similar.
type Kind = (String, String, &'static str, bool);

#[derive(Debug)]
struct Known {
    name: String,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

#[derive(Debug)]
struct Allowance {
    left: f64,
    at: Timestamp,
}

/// What was seen before.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    events: HashMap<(Kind, String), Known>,
    similar: HashMap<Kind, (Timestamp, Vec<String>)>,
    allowances: HashMap<String, Allowance>,
}

impl Aggregator {
    /// What to write; nothing if the object has used up its allowance.
    pub(super) fn take(&mut self, occurrence: Occurrence, now: Timestamp) -> Option<Outcome> {
        self.forget_if_crowded();
        let object = occurrence.object.uid.clone().unwrap_or_default();
        if !self.allow(&object, now) {
            return None;
        }
        let kind: Kind = (
            object,
            occurrence.object.field_path.clone().unwrap_or_default(),
            occurrence.reason,
            occurrence.event_type == crate::objects::EventType::Warning,
        );
        let many = self.is_one_of_many(&kind, &occurrence.message, now);
        let message = if many {
            format!("(combined from similar events): {}", occurrence.message)
        } else {
            occurrence.message.clone()
        };
        // Combined events share one entry, whatever they say.
        let key = (kind, if many { String::new() } else { message.clone() });
        let base = occurrence.object.name.clone().unwrap_or_default();
        let known = self.events.entry(key).or_insert_with(|| Known {
            name: format!("{base}.{:x}", now.as_nanosecond()),
            count: 0,
            first: now,
            last: now,
        });
        known.count += 1;
        known.last = now;
        let Known {
            name,
            count,
            first,
            last,
        } = known;
        Some(Outcome {
            name: name.clone(),
            message,
            count: *count,
            first: *first,
            last: *last,
            occurrence,
        })
    }

    fn is_one_of_many(&mut self, kind: &Kind, message: &str, now: Timestamp) -> bool {
        let (since, messages) = self
            .similar
            .entry(kind.clone())
            .or_insert((now, Vec::new()));
        if now.duration_since(*since) > SIMILAR_WINDOW {
            (*since, *messages) = (now, Vec::new());
        }
        if messages.iter().any(|known| known == message) {
            return false;
        }
        if messages.len() >= SIMILAR {
            return true;
        }
        messages.push(message.to_owned());
        false
    }

    fn allow(&mut self, object: &str, now: Timestamp) -> bool {
        let fresh = Allowance {
            left: BURST,
            at: now,
        };
        let allowance = self.allowances.entry(object.to_owned()).or_insert(fresh);
        let refill = now.duration_since(allowance.at).as_secs_f64() / REFILL.as_secs_f64();
        allowance.left = (allowance.left + refill).min(BURST);
        allowance.at = now;
        if allowance.left < 1.0 {
            return false;
        }
        allowance.left -= 1.0;
        true
    }

    /// Pods come and go; what is forgotten merely begins again at 1.
    fn forget_if_crowded(&mut self) {
        if self.events.len() >= REMEMBERED || self.allowances.len() >= REMEMBERED {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::EventType;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn occurrence(uid: &str, message: &str) -> Occurrence {
        let object = ObjectReference {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        Occurrence::new(object, EventType::Normal, "Pulled", message.into())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn repetition_counts() {
        let mut aggregator = Aggregator::default();
        let first = aggregator.take(occurrence("u", "a"), at(1)).unwrap();
        let second = aggregator.take(occurrence("u", "a"), at(5)).unwrap();
        assert_eq!((first.count, second.count), (1, 2));
        assert_eq!(first.name, second.name);
        assert_eq!((second.first, second.last), (at(1), at(5)));
        let other = aggregator.take(occurrence("u", "b"), at(6)).unwrap();
        assert_eq!(other.count, 1);
        assert_ne!(other.name, first.name);
        let other_pod = aggregator.take(occurrence("v", "a"), at(6)).unwrap();
        assert_eq!(other_pod.count, 1);
    }

    #[test]
    fn many_similar_ones_become_one() {
        let mut aggregator = Aggregator::default();
        for index in 0..10 {
            let outcome = aggregator
                .take(occurrence("u", &index.to_string()), at(1))
                .unwrap();
            assert_eq!(outcome.count, 1);
        }
        let combined = aggregator.take(occurrence("u", "10"), at(2)).unwrap();
        assert_eq!(combined.message, "(combined from similar events): 10");
        let more = aggregator.take(occurrence("u", "11"), at(3)).unwrap();
        assert_eq!((more.count, &more.name), (2, &combined.name));
    }

    #[test]
    fn a_noisy_object_is_cut_and_comes_back() {
        let mut aggregator = Aggregator::default();
        for _ in 0..25 {
            assert!(aggregator.take(occurrence("u", "a"), at(1)).is_some());
        }
        assert!(aggregator.take(occurrence("u", "a"), at(2)).is_none());
        assert!(aggregator.take(occurrence("v", "a"), at(2)).is_some());
        assert!(aggregator.take(occurrence("u", "a"), at(2 + 300)).is_some());
    }

    #[test]
    fn the_event_is_the_kubelets() {
        let mut aggregator = Aggregator::default();
        let outcome = aggregator.take(occurrence("u", "a"), at(1)).unwrap();
        let event = outcome.occurrence.to_event("n1", &outcome);
        let source = event.source.unwrap();
        assert_eq!(source.component.as_deref(), Some("kubelet"));
        assert_eq!(source.host.as_deref(), Some("n1"));
        assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
        assert!(event.metadata.name.unwrap().starts_with("web."));
    }
}
