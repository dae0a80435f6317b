//! `spec.nodeSelector` and the required part of `spec.affinity.nodeAffinity`.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod};

use crate::state::Rejection;

/// Both must select the node.
pub(super) fn selects(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    by_selector(pod, node)?;
    by_affinity(pod, node)
}

fn rejection(message: String) -> Rejection {
    Rejection {
        reason: "NodeAffinity",
        message,
    }
}

fn by_selector(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let spec = pod.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.node_selector.as_ref());
    for (key, value) in wanted.into_iter().flatten() {
        if label(node, key) != Some(value) {
            let message =
                format!("the node has no label {key}={value}, which spec.nodeSelector asks for");
            return Err(rejection(message));
        }
    }
    Ok(())
}

fn by_affinity(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let required = pod.spec.as_ref().and_then(|spec| {
        let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let Some(required) = required else {
        return Ok(());
    };
    if required
        .node_selector_terms
        .iter()
        .any(|t| matches(t, node))
    {
        return Ok(());
    }
    Err(rejection(
        "the node matches none of the nodeSelectorTerms that spec.affinity.nodeAffinity requires"
            .into(),
    ))
}

/// All requirements of a term hold; an empty term matches no node.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let is_empty = expressions.is_empty() && fields.is_empty();
    let name = node.metadata.name.as_ref();
    !is_empty
        && expressions.iter().all(|e| holds(e, label(node, &e.key)))
        // The API has no other field, and no other operators for it.
        && fields.iter().all(|field| {
            field.key == "metadata.name"
                && matches!(field.operator.as_str(), "In" | "NotIn")
                && holds(field, name)
        })
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a String> {
    node.metadata.labels.as_ref()?.get(key)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, values).is_some_and(|(have, bound)| have > bound),
        "Lt" => compare(value, values).is_some_and(|(have, bound)| have < bound),
        _ => false,
    }
}

/// Both sides as numbers, if that is what they are.
fn compare(value: Option<&String>, values: &[String]) -> Option<(i64, i64)> {
    let [bound] = values else {
        return None;
    };
    Some((value?.parse().ok()?, bound.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {
            "name": "n1", "labels": {"disk": "ssd", "cores": "8", "empty": ""}}}))
        .unwrap()
    }

    #[track_caller]
    fn check(terms: &Value, want: bool) {
        let required = json!({"nodeSelectorTerms": terms});
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [], "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}}))
        .unwrap();
        let got = selects(&pod, &node());
        assert_eq!(got.is_ok(), want, "{terms}: {got:?}");
        if let Err(rejection) = got {
            assert_eq!(rejection.reason, "NodeAffinity");
        }
    }

    #[test]
    fn operators() {
        for (key, operator, values, want) in [
            ("disk", "In", json!(["hdd", "ssd"]), true),
            ("disk", "In", json!(["hdd"]), false),
            ("disk", "In", json!([]), false),
            ("none", "In", json!([""]), false),
            ("empty", "In", json!([""]), true),
            ("disk", "NotIn", json!(["hdd"]), true),
            ("disk", "NotIn", json!(["ssd"]), false),
            ("none", "NotIn", json!(["ssd"]), true),
            ("empty", "Exists", json!([]), true),
            ("none", "Exists", json!([]), false),
            ("none", "DoesNotExist", json!([]), true),
            ("disk", "DoesNotExist", json!([]), false),
            ("cores", "Gt", json!(["7"]), true),
            ("cores", "Gt", json!(["8"]), false),
            ("cores", "Lt", json!(["9"]), true),
            ("cores", "Lt", json!(["8"]), false),
            ("cores", "Lt", json!(["9", "10"]), false),
            ("cores", "Gt", json!(["few"]), false),
            ("disk", "Gt", json!(["1"]), false),
            ("none", "Lt", json!(["1"]), false),
            ("disk", "Like", json!(["ssd"]), false),
        ] {
            let expression = json!({"key": key, "operator": operator, "values": values});
            check(&json!([{"matchExpressions": [expression]}]), want);
        }
    }

    #[test]
    fn fields() {
        let field = |key: &str, operator: &str, name: &str| json!([{"matchFields": [{"key": key, "operator": operator, "values": [name]}]}]);
        check(&field("metadata.name", "In", "n1"), true);
        check(&field("metadata.name", "In", "n2"), false);
        check(&field("metadata.name", "NotIn", "n2"), true);
        check(&field("metadata.name", "NotIn", "n1"), false);
        check(&field("metadata.name", "Exists", "n1"), false);
        check(&field("metadata.uid", "NotIn", "x"), false);
    }

    #[test]
    fn terms_are_alternatives_and_their_requirements_are_not() {
        let yes = json!({"key": "disk", "operator": "Exists"});
        let no = json!({"key": "none", "operator": "Exists"});
        let here = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let there = json!({"key": "metadata.name", "operator": "In", "values": ["n2"]});
        check(
            &json!([{"matchExpressions": [no]}, {"matchExpressions": [yes]}]),
            true,
        );
        check(&json!([{"matchExpressions": [yes, no]}]), false);
        check(
            &json!([{"matchExpressions": [yes], "matchFields": [here]}]),
            true,
        );
        check(
            &json!([{"matchExpressions": [yes], "matchFields": [there]}]),
            false,
        );
        check(&json!([{}]), false);
        check(&json!([]), false);
    }

    #[test]
    fn the_selector_holds_beside_the_affinity() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [],
            "nodeSelector": {"disk": "hdd"}}}))
        .unwrap();
        let message = selects(&pod, &node()).unwrap_err().message;
        assert_eq!(
            message,
            "the node has no label disk=hdd, which spec.nodeSelector asks for"
        );
    }
}
