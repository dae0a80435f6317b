//! What to write of a Node's status, and whether to.

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use serde_json::{Value, json};

/// Whether `wanted` says anything that `known` does not, heartbeat times aside.
pub(super) fn differs(known: &NodeStatus, wanted: &NodeStatus) -> bool {
    known.addresses != wanted.addresses
        || known.allocatable != wanted.allocatable
        || known.capacity != wanted.capacity
        || known.daemon_endpoints != wanted.daemon_endpoints
        || known.node_info != wanted.node_info
        || wanted
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition_differs(known, condition))
}

fn condition_differs(known: &NodeStatus, wanted: &NodeCondition) -> bool {
    !known.conditions.iter().flatten().any(|known| {
        known.type_ == wanted.type_
            && known.status == wanted.status
            && known.reason == wanted.reason
            && known.message == wanted.message
    })
}

/// A strategic merge patch: conditions merge by type, so those of others stay.
pub(super) fn status_patch(node: &Node, status: &NodeStatus) -> Value {
    let mut body = serde_json::to_value(status).expect("a status is plain data");
    // Addresses merge by type, which keeps stale ones and cannot hold two of a type
    // (kubernetes/kubernetes#79391); so the list is replaced as a whole.
    if let Some(addresses) = body.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.push(json!({"$patch": "replace"}));
    }
    // With the UID a Node that was deleted and made anew is not written by mistake.
    json!({"metadata": {"uid": node.metadata.uid}, "status": body})
}

pub(super) fn ready_status(status: &NodeStatus) -> Option<&str> {
    let conditions = status.conditions.as_deref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")?;
    Some(ready.status.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::NodeAddress;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn status(condition: &str, reason: &str, heartbeat: i64) -> NodeStatus {
        NodeStatus {
            conditions: Some(vec![NodeCondition {
                type_: "Ready".into(),
                status: condition.into(),
                reason: Some(reason.into()),
                last_heartbeat_time: Some(Time(Timestamp::from_second(heartbeat).unwrap())),
                ..NodeCondition::default()
            }]),
            ..NodeStatus::default()
        }
    }

    #[test]
    fn heartbeats_alone_are_no_difference() {
        let known = status("True", "a", 1);
        assert!(!differs(&known, &status("True", "a", 2)));
        assert!(differs(&known, &status("False", "a", 1)));
        assert!(differs(&known, &status("True", "b", 1)));
        assert!(differs(&NodeStatus::default(), &known));
    }

    #[test]
    fn conditions_of_others_are_no_difference() {
        let mut known = status("True", "a", 1);
        let foreign = NodeCondition {
            type_: "NetworkUnavailable".into(),
            ..NodeCondition::default()
        };
        known.conditions.as_mut().unwrap().push(foreign);
        assert!(!differs(&known, &status("True", "a", 1)));
    }

    #[test]
    fn addresses_are_replaced_and_the_uid_is_a_condition() {
        let mut node = Node::default();
        node.metadata.uid = Some("u1".into());
        let address = NodeAddress {
            type_: "InternalIP".into(),
            address: "10.0.0.1".into(),
        };
        let status = NodeStatus {
            addresses: Some(vec![address]),
            ..NodeStatus::default()
        };
        let patch = status_patch(&node, &status);
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(
            patch["status"]["addresses"][1],
            json!({"$patch": "replace"})
        );
        assert!(patch["status"].get("capacity").is_none());
    }
}
