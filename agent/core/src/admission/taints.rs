//! Taints that evict: a pod that does not tolerate one does not start either.

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use crate::state::Rejection;

/// Every NoExecute taint is tolerated. The other effects are the scheduler's: whoever
/// names a node in `spec.nodeName` goes past them on purpose.
pub(super) fn tolerates(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let open = taints
        .unwrap_or_default()
        .iter()
        .filter(|taint| taint.effect == "NoExecute")
        .find(|taint| !tolerations.iter().any(|t| covers(t, taint)));
    let Some(taint) = open else {
        return Ok(());
    };
    let (key, value) = (&taint.key, taint.value.as_deref().unwrap_or_default());
    Err(Rejection {
        reason: "TaintToleration",
        message: format!("the pod does not tolerate the node's taint {key}={value}:NoExecute"),
    })
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    fn text(field: Option<&String>) -> &str {
        field.map(String::as_str).unwrap_or_default()
    }
    let effect = text(toleration.effect.as_ref());
    let key = text(toleration.key.as_ref());
    let value = text(toleration.value.as_ref());
    let fits = |wanted: &str, have: &str| wanted.is_empty() || wanted == have;
    fits(effect, &taint.effect)
        && match text(toleration.operator.as_ref()) {
            // No key is every key.
            "Exists" => fits(key, &taint.key),
            "" | "Equal" => key == taint.key && value == text(taint.value.as_ref()),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(taints: &Value, tolerations: &Value, want: Option<&str>) {
        let node: Node = serde_json::from_value(json!({"spec": {"taints": taints}})).unwrap();
        let pod = json!({"spec": {"containers": [], "tolerations": tolerations}});
        let got = tolerates(&serde_json::from_value(pod).unwrap(), &node);
        let message = want
            .map(|taint| format!("the pod does not tolerate the node's taint {taint}:NoExecute"));
        assert_eq!(
            got.err().map(|r| r.message),
            message,
            "{taints} {tolerations}"
        );
    }

    #[test]
    fn tolerations() {
        let taint = json!([{"key": "gpu", "value": "a", "effect": "NoExecute"}]);
        for (toleration, is_tolerated) in [
            (
                json!({"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoExecute"}),
                true,
            ),
            (json!({"key": "gpu", "value": "a"}), true),
            (json!({"key": "gpu", "value": "b"}), false),
            (json!({"key": "gpu"}), false),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (
                json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}),
                true,
            ),
            (
                json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}),
                false,
            ),
            (json!({"key": "fpga", "operator": "Exists"}), false),
            (json!({"operator": "Exists"}), true),
            (
                json!({"operator": "Exists", "effect": "PreferNoSchedule"}),
                false,
            ),
            (json!({"value": "a"}), false),
            (
                json!({"key": "gpu", "operator": "Near", "value": "a"}),
                false,
            ),
        ] {
            let want = (!is_tolerated).then_some("gpu=a");
            check(&taint, &json!([toleration]), want);
        }
    }

    #[test]
    fn only_no_execute_counts_and_each_must_be_tolerated() {
        check(
            &json!([{"key": "a", "effect": "NoSchedule"}]),
            &json!([]),
            None,
        );
        check(
            &json!([{"key": "a", "effect": "PreferNoSchedule"}]),
            &json!([]),
            None,
        );
        let two = json!([
            {"key": "a", "effect": "NoExecute"}, {"key": "b", "value": "1", "effect": "NoExecute"}]);
        let a = json!({"key": "a", "operator": "Exists"});
        let b = json!({"key": "b", "operator": "Equal", "value": "1"});
        check(&two, &json!([]), Some("a="));
        check(&two, &json!([a]), Some("b=1"));
        check(&two, &json!([b, a]), None);
    }
}
