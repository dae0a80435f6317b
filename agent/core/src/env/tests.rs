use serde_json::json;

use super::*;

fn pod(container: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n1", "enableServiceLinks": false, "containers": [container]},
        "status": {"podIP": "10.0.0.1", "hostIP": "192.168.0.1"}
    }))
    .unwrap()
}

fn sources() -> Sources {
    let map: ConfigMap = serde_json::from_value(json!({"data": {"a": "1", "b.c": "2"}})).unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"data": {"key": "c2VjcmV0", "bin": "/w=="}})).unwrap();
    let service = |namespace: &str, name: &str, ip: &str| {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80}]}}))
        .unwrap()
    };
    Sources {
        config_maps: [("cm".to_owned(), map)].into(),
        secrets: [("s".to_owned(), secret)].into(),
        services: vec![
            service("default", "kubernetes", "10.96.0.1"),
            service("ns", "my-web", "10.96.0.7"),
            service("ns", "headless", "None"),
        ],
        allocatable: [("cpu".to_owned(), Quantity("4".into()))].into(),
    }
}

fn env(container: serde_json::Value) -> Result<BTreeMap<String, String>, EnvError> {
    let pod = pod(container);
    let vars = resolve(&pod, &crate::spec::containers(&pod)[0], &sources())?;
    Ok(vars
        .into_iter()
        .filter(|(name, _)| !name.starts_with("KUBERNETES"))
        .collect())
}

#[track_caller]
fn value(var: serde_json::Value) -> Result<Option<String>, String> {
    let mut var = var;
    var["name"] = json!("X");
    let vars = env(json!({"name": "c", "env": [{"name": "A", "value": "a"}, var]}));
    vars.map(|mut vars| vars.remove("X"))
        .map_err(|error| error.to_string())
}

#[test]
fn single_values() {
    for (var, want) in [
        (json!({"value": "v"}), Some("v")),
        (json!({}), Some("")),
        (json!({"value": "$(A)/$(B)/$$(A)"}), Some("a/$(B)/$(A)")),
        (
            json!({"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
            Some("10.0.0.1"),
        ),
        (
            json!({"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
            Some("n1"),
        ),
        (
            json!({"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
            Some("192.168.0.1"),
        ),
        (
            json!({"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
            Some("4"),
        ),
        (
            json!({"valueFrom": {"configMapKeyRef": {"name": "cm", "key": "a"}}}),
            Some("1"),
        ),
        (
            json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}),
            Some("secret"),
        ),
        (
            json!({"valueFrom": {"configMapKeyRef": {"name": "cm", "key": "z", "optional": true}}}),
            None,
        ),
        (
            json!({"valueFrom": {"secretKeyRef": {"name": "none", "key": "z", "optional": true}}}),
            None,
        ),
    ] {
        assert_eq!(
            value(var.clone()).as_ref().map(Option::as_deref),
            Ok(want),
            "{var}"
        );
    }
}

#[test]
fn what_is_missing_is_named() {
    for (var, want) in [
        (
            json!({"valueFrom": {"configMapKeyRef": {"name": "no", "key": "a"}}}),
            "configmap \"no\" not found",
        ),
        (
            json!({"valueFrom": {"secretKeyRef": {"name": "no", "key": "a"}}}),
            "secret \"no\" not found",
        ),
        (
            json!({"valueFrom": {"configMapKeyRef": {"name": "cm", "key": "z"}}}),
            "couldn't find key z in ConfigMap ns/cm",
        ),
        (
            json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "z"}}}),
            "couldn't find key z in Secret ns/s",
        ),
        (
            json!({"valueFrom": {"secretKeyRef": {"name": "s", "key": "bin"}}}),
            "key bin of Secret s is not UTF-8, as an environment variable has to be",
        ),
        (
            json!({"valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}),
            "environment variable X: unsupported fieldPath: spec.x",
        ),
    ] {
        assert_eq!(value(var.clone()), Err(want.to_owned()), "{var}");
    }
}

#[test]
fn env_from_has_prefixes_and_env_wins() {
    let vars = env(json!({"name": "c",
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}},
            {"secretRef": {"name": "none", "optional": true}}],
        "env": [{"name": "P_a", "value": "over"}, {"name": "D", "value": "$(P_b.c)"}]}))
    .unwrap();
    let want = [("D", "2"), ("P_a", "over"), ("P_b.c", "2")];
    assert_eq!(
        vars.iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect::<Vec<_>>(),
        want
    );
    let missing = env(json!({"name": "c", "envFrom": [{"configMapRef": {"name": "none"}}]}));
    assert_eq!(
        missing.unwrap_err().to_string(),
        "configmap \"none\" not found"
    );
}

#[test]
fn service_variables() {
    let mut pod = pod(json!({"name": "c", "env": [{"name": "U", "value": "$(MY_WEB_PORT)"}]}));
    let vars = |pod: &Pod| -> BTreeMap<String, String> {
        resolve(pod, &crate::spec::containers(pod)[0], &sources())
            .unwrap()
            .into_iter()
            .collect()
    };
    let without = vars(&pod);
    assert_eq!(without["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
    assert!(!without.contains_key("MY_WEB_SERVICE_HOST"));
    pod.spec.as_mut().unwrap().enable_service_links = None;
    let with = vars(&pod);
    for (name, want) in [
        ("MY_WEB_SERVICE_HOST", "10.96.0.7"),
        ("MY_WEB_SERVICE_PORT", "80"),
        ("MY_WEB_SERVICE_PORT_HTTP", "80"),
        ("MY_WEB_PORT", "tcp://10.96.0.7:80"),
        ("MY_WEB_PORT_80_TCP", "tcp://10.96.0.7:80"),
        ("MY_WEB_PORT_80_TCP_PROTO", "tcp"),
        ("MY_WEB_PORT_80_TCP_PORT", "80"),
        ("MY_WEB_PORT_80_TCP_ADDR", "10.96.0.7"),
        ("U", "tcp://10.96.0.7:80"),
    ] {
        assert_eq!(with[name], want, "{name}");
    }
    assert!(!with.keys().any(|name| name.starts_with("HEADLESS")));
}

#[test]
fn references_are_found() {
    let container: Container = serde_json::from_value(json!({"name": "c",
        "envFrom": [{"secretRef": {"name": "a"}}],
        "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "b", "key": "k"}}}]}))
    .unwrap();
    let found = references(&container);
    assert_eq!(found.secrets.into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(found.config_maps.into_iter().collect::<Vec<_>>(), ["b"]);
}
