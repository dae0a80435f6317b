#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn service(name: &str, ip: &str) -> Service {
    let object = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": ip, "ports": [{"port": 80}]},
    });
    serde_json::from_value(object).unwrap()
}

fn slice(name: &str, service: &str, ip: &str) -> EndpointSlice {
    let object = json!({
        "metadata": {"namespace": "default", "name": name,
                     "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": [ip]}],
    });
    serde_json::from_value(object).unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn addresses(model: &Model, service: &str) -> Vec<String> {
    let slices = model.slices_of(&key(service));
    slices
        .flat_map(|s| &s.endpoints)
        .map(|e| e.addr.to_string())
        .collect()
}

#[test]
fn tells_whether_something_changed() {
    let mut model = Model::new();
    let mut web = service("web", "10.96.0.1");
    assert!(model.apply_service(&web));
    assert!(!model.apply_service(&web));
    web.metadata.annotations = Some([("note".to_owned(), "x".to_owned())].into());
    assert!(
        !model.apply_service(&web),
        "an annotation is nobody's business"
    );
    assert!(model.delete_service(&key("web")));
    assert!(!model.delete_service(&key("web")));

    let one = slice("s", "web", "10.0.0.1");
    assert!(model.apply_slice(&one));
    assert!(!model.apply_slice(&one));
    assert!(model.apply_slice(&slice("s", "web", "10.0.0.2")));
    assert!(model.delete_slice(&key("s")));
    assert!(!model.delete_slice(&key("s")));
}

#[test]
fn a_relabelled_slice_leaves_its_former_service() {
    let mut model = Model::new();
    model.apply_slice(&slice("s", "old", "10.0.0.1"));
    model.apply_slice(&slice("s", "new", "10.0.0.1"));
    assert!(addresses(&model, "old").is_empty());
    assert_eq!(addresses(&model, "new"), ["10.0.0.1"]);
    model.delete_slice(&key("s"));
    assert!(addresses(&model, "new").is_empty());
}

#[test]
fn reset_forgets_what_is_not_named() {
    let mut model = Model::new();
    model.reset_services(&[service("a", "10.96.0.1"), service("b", "10.96.0.2")]);
    model.reset_slices(&[slice("s", "a", "10.0.0.1"), slice("t", "a", "10.0.0.2")]);
    assert!(!model.reset_slices(&[slice("s", "a", "10.0.0.1"), slice("t", "a", "10.0.0.2")]));

    assert!(model.reset_services(&[service("b", "10.96.0.2")]));
    assert!(model.reset_slices(&[slice("t", "a", "10.0.0.2")]));
    assert_eq!(
        model
            .services()
            .map(|(key, _)| key.name.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(addresses(&model, "a"), ["10.0.0.2"]);
}

/// Alone, or beside what was known before and is the same.
#[test]
fn a_list_says_whether_anything_in_it_is_new() {
    let mut model = Model::new();
    let (a, b) = (service("a", "10.96.0.1"), service("b", "10.96.0.2"));
    for (list, changed) in [
        (vec![&a], true),
        (vec![&a], false),
        (vec![&b, &a], true),
        (vec![&a, &b], false),
        (vec![&b], true),
        (vec![], true),
        (vec![], false),
    ] {
        assert_eq!(model.reset_services(list.clone()), changed, "{list:?}");
    }
    let (a, b) = (slice("a", "web", "10.0.0.1"), slice("b", "web", "10.0.0.2"));
    for (list, changed) in [
        (vec![&a], true),
        (vec![&a], false),
        (vec![&b, &a], true),
        (vec![&a, &b], false),
        (vec![&b], true),
        (vec![], true),
        (vec![], false),
    ] {
        assert_eq!(model.reset_slices(list.clone()), changed, "{list:?}");
    }
}

#[test]
fn a_bad_object_hurts_no_other() {
    let mut model = Model::new();
    model.apply_service(&service("good", "10.96.0.1"));
    model.apply_service(&service("bad", "10.96.0.1111"));
    model.apply_slice(&slice("bad", "good", "10.0.0.x"));
    model.apply_slice(&slice("good", "good", "10.0.0.1"));
    assert_eq!(model.services().count(), 1);
    assert_eq!(addresses(&model, "good"), ["10.0.0.1"]);
    assert_eq!(model.skipped().count(), 2);
}

/// One with an endpoint on this node.
fn on_node(name: &str, node: &str) -> EndpointSlice {
    let mut slice = slice(name, "web", "10.0.0.1");
    for endpoint in slice.endpoints.iter_mut().flatten() {
        endpoint.node_name = Some(node.to_owned());
    }
    slice
}

fn node_name(model: &Model, slice: usize) -> Arc<str> {
    let mut slices = model.slices_of(&key("web"));
    slices.nth(slice).unwrap().endpoints[0]
        .node_name
        .clone()
        .unwrap()
}

#[test]
fn a_nodes_name_is_in_memory_once_and_goes_with_the_last_that_has_it() {
    let mut model = Model::new();
    model.apply_slice(&on_node("a", "n1"));
    model.apply_slice(&on_node("b", "n1"));
    assert!(Arc::ptr_eq(&node_name(&model, 0), &node_name(&model, 1)));

    // One node after the other has the endpoint, and 64 names may be kept for nobody.
    for n in 0..200 {
        model.apply_slice(&on_node("a", &format!("other-{n}")));
        assert!(model.nodes.all.len() <= 70, "{n}: {:?}", model.nodes.all);
    }
    // As long as it is in use it stays the one that all share.
    model.apply_slice(&on_node("a", "n1"));
    assert!(Arc::ptr_eq(&node_name(&model, 0), &node_name(&model, 1)));
}
