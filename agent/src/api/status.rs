//! The patch that brings a pod's status to what it should be.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Map, Value, json};

/// Lists that a strategic merge patch would merge by address; ours replace them.
const REPLACED_LISTS: [&str; 2] = ["podIPs", "hostIPs"];

/// A strategic merge patch of the `status` subresource, or nothing if the pod says so
/// already. It holds only for this UID. Conditions merge by type, so those of others
/// (readiness gates, disruption) stay; fields that are not ours are not touched.
pub(super) fn patch(pod: &Pod, status: &PodStatus) -> Option<Value> {
    let known = serde_json::to_value(pod.status.as_ref()).expect("a status is plain data");
    let wanted = serde_json::to_value(status).expect("a status is plain data");
    let Value::Object(mut body) = wanted else {
        return None;
    };
    clear_old_reason(&known, &mut body);
    clear_condition_fields(&mut body);
    if is_contained(&Value::Object(body.clone()), &known) {
        return None;
    }
    for list in REPLACED_LISTS {
        if let Some(addresses) = body.get_mut(list).and_then(Value::as_array_mut) {
            addresses.push(json!({"$patch": "replace"}));
        }
    }
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": body}))
}

/// `reason` and `message` belong to a phase: what a person wrote there stays until the
/// phase changes.
fn clear_old_reason(known: &Value, body: &mut Map<String, Value>) {
    if known.get("phase") == body.get("phase") {
        return;
    }
    for field in ["reason", "message"] {
        if known.get(field).is_some() && !body.contains_key(field) {
            body.insert(field.to_owned(), Value::Null);
        }
    }
}

/// Merging keeps what the patch does not name, such as the reason of an earlier state.
fn clear_condition_fields(body: &mut Map<String, Value>) {
    let conditions = body.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        for field in ["reason", "message"] {
            condition.entry(field).or_insert(Value::Null);
        }
    }
}

/// Whether merging `wanted` into `known` would change nothing.
fn is_contained(wanted: &Value, known: &Value) -> bool {
    let Value::Object(wanted) = wanted else {
        return wanted == known;
    };
    wanted
        .iter()
        .all(|(field, wanted)| match (field.as_str(), known.get(field)) {
            (_, None) => wanted.is_null(),
            ("conditions", Some(known)) => conditions_are_contained(wanted, known),
            (_, Some(known)) => wanted == known,
        })
}

fn conditions_are_contained(wanted: &Value, known: &Value) -> bool {
    let known = known.as_array().map(Vec::as_slice).unwrap_or_default();
    wanted.as_array().into_iter().flatten().all(|wanted| {
        known
            .iter()
            .any(|known| known.get("type") == wanted.get("type") && is_contained(wanted, known))
    })
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "uid": "u1"},
            "status": status,
        }))
        .unwrap()
    }

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nothing_to_say_is_no_patch() {
        let known = json!({
            "phase": "Running",
            "qosClass": "Burstable",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "example.com/gate", "status": "True"},
            ],
        });
        let same = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        assert_eq!(patch(&pod(known.clone()), &status(same)), None);
        let other = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}],
        });
        assert!(patch(&pod(known), &status(other)).is_some());
    }

    #[test]
    fn the_patch_holds_for_one_uid() {
        let patch = patch(&pod(json!({})), &status(json!({"phase": "Pending"}))).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"uid": "u1"}, "status": {"phase": "Pending"}})
        );
    }

    #[test]
    fn a_condition_loses_its_old_reason() {
        let known = json!({"conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        ]});
        let wanted = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let patch = patch(&pod(known), &status(wanted)).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["reason"], Value::Null);
        assert!(
            patch["status"]["conditions"][0]
                .as_object()
                .unwrap()
                .contains_key("reason")
        );
    }

    #[test]
    fn reason_and_message_go_with_the_phase() {
        let known = json!({"phase": "Pending", "reason": "r", "message": "by hand"});
        let same = patch(&pod(known.clone()), &status(json!({"phase": "Pending"})));
        assert_eq!(same, None);
        let next = patch(&pod(known), &status(json!({"phase": "Running"}))).unwrap();
        assert_eq!(next["status"]["message"], Value::Null);
    }

    #[test]
    fn addresses_replace_older_ones() {
        let wanted = status(json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}));
        let patch = patch(&pod(json!({})), &wanted).unwrap();
        let ips = json!([{"ip": "10.0.0.1"}, {"$patch": "replace"}]);
        assert_eq!(patch["status"]["podIPs"], ips);
    }
}
