use serde_json::json;

use super::*;

fn service(namespace: &str, name: &str, cluster_ip: &str) -> Service {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterIP": cluster_ip},
    }))
    .unwrap()
}

#[test]
fn environments_show_services_with_an_address() {
    assert!(is_for_environment(
        &service("shop", "web", "10.0.0.1"),
        "shop"
    ));
    assert!(!is_for_environment(&service("shop", "web", "None"), "shop"));
    assert!(!is_for_environment(&service("shop", "web", ""), "shop"));
    assert!(!is_for_environment(
        &service("other", "web", "10.0.0.1"),
        "shop"
    ));
    assert!(is_for_environment(
        &service("default", "kubernetes", "10.0.0.1"),
        "shop"
    ));
}

#[test]
fn tokens_are_bound_to_the_pod() {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
    }))
    .unwrap();
    let request = token_request(&pod, None, 3607);
    let spec = request.spec.unwrap();
    assert!(spec.audiences.unwrap().is_empty());
    assert_eq!(spec.expiration_seconds, Some(3607));
    let bound = spec.bound_object_ref.unwrap();
    assert_eq!(
        (bound.kind.as_deref(), bound.uid.as_deref()),
        (Some("Pod"), Some("u1"))
    );
}

#[test]
fn refusals_are_told_apart() {
    let refused = |code| {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        object_error(
            "get",
            "Secret",
            "shop",
            "s",
            kube::Error::Api(Box::new(status)),
        )
    };
    assert!(matches!(refused(404), ObjectError::NotFound { .. }));
    assert!(matches!(refused(409), ObjectError::NotFound { .. }));
    let error = refused(500);
    assert_eq!(error.to_string(), "get Secret shop/s");
}
