#![allow(clippy::needless_pass_by_value, reason = "json! makes values")]

use serde_json::{Value, json};

use super::*;
use crate::local::Refusal;

fn listing(pods: Value, services: Value, slices: Value) -> Listing {
    serde_json::from_value(json!({
        "pods": pods, "services": services, "endpointSlices": slices,
    }))
    .unwrap()
}

fn pod(name: &str, status: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "default", "name": name, "creationTimestamp": "1970-01-01T00:00:10Z",
        },
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
        "status": status,
    })
}

fn container(ready: bool, restarts: i32, state: Value) -> Value {
    json!({
        "name": "a", "image": "", "imageID": "", "ready": ready, "restartCount": restarts,
        "state": state,
    })
}

#[track_caller]
fn check(listing: Listing, what: What, want: &str) {
    let mut out = Vec::new();
    let now = Timestamp::from_second(100).unwrap();
    show(listing, what, Output::Table, now, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn pods_in_a_table() {
    let running = json!({
        "phase": "Running", "podIP": "10.244.0.5",
        "containerStatuses": [
            container(true, 1, json!({"running": {}})),
            container(false, 2, json!({"running": {}})),
        ],
    });
    let crashing = json!({
        "phase": "Running",
        "containerStatuses": [
            container(false, 0, json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        ],
    });
    let pods = json!([
        pod("web", running),
        pod("bad", crashing),
        pod("new", Value::Null)
    ]);
    check(
        listing(pods, json!([]), Value::Null),
        What::Pods,
        "\
NAMESPACE   NAME   READY   STATUS             RESTARTS   AGE   IP
default     bad    0/2     CrashLoopBackOff   0          90s   <none>
default     new    0/2     Unknown            0          90s   <none>
default     web    1/2     Running            3          90s   10.244.0.5
",
    );
}

#[test]
fn init_containers_are_shown_while_they_run() {
    let mut starting = pod(
        "web",
        json!({
            "phase": "Pending",
            "initContainerStatuses": [
                container(true, 0, json!({"terminated": {"exitCode": 0}})),
                container(false, 0, json!({"running": {}})),
            ],
        }),
    );
    starting["spec"]["initContainers"] = json!([{"name": "x"}, {"name": "y"}]);
    let mut ending = pod("old", json!({"phase": "Running"}));
    ending["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:10Z");
    check(
        listing(json!([starting, ending]), json!([]), Value::Null),
        What::Pods,
        "\
NAMESPACE   NAME   READY   STATUS        RESTARTS   AGE   IP
default     old    0/2     Terminating   0          90s   <none>
default     web    0/2     Init:1/2      0          90s   <none>
",
    );
}

#[test]
fn services_in_a_table() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "default", "name": "web", "creationTimestamp": "1970-01-01T00:00:10Z",
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.7",
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": "default", "name": "web-0",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [
            {"addresses": ["10.244.0.6"], "conditions": {"ready": true}},
            {"addresses": ["10.244.0.5"], "conditions": {"ready": true}},
            {"addresses": ["10.244.0.4"], "conditions": {"ready": false}},
        ],
    });
    check(
        listing(json!([]), json!([service.clone()]), json!([slice])),
        What::Services,
        "\
NAMESPACE   NAME   TYPE        CLUSTER-IP   PORT(S)         ENDPOINTS                         AGE
default     web    ClusterIP   10.96.0.7    80/TCP,53/UDP   10.244.0.5:8080,10.244.0.6:8080   90s
",
    );
    check(
        listing(json!([]), json!([service]), Value::Null),
        What::Services,
        "\
NAMESPACE   NAME   TYPE        CLUSTER-IP   PORT(S)         AGE
default     web    ClusterIP   10.96.0.7    80/TCP,53/UDP   90s
",
    );
}

#[test]
fn json_is_a_list() {
    let mut out = Vec::new();
    let listing = listing(json!([pod("web", json!({}))]), json!([]), json!([]));
    show(
        listing,
        What::Pods,
        Output::Json,
        Timestamp::UNIX_EPOCH,
        &mut out,
    )
    .unwrap();
    let list: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(list["kind"], "PodList");
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
    assert_eq!(list["items"][0]["kind"], "Pod");
}

#[test]
fn refusals_are_told_with_what_runs() {
    let refusal = |file: &str, has_valid_version| Refusal {
        file: file.into(),
        problem: "Pod default/web: spec.x: unknown field".into(),
        has_valid_version,
    };
    let listing = Listing {
        refused: vec![refusal("a.yaml", true), refusal("b.yaml", false)],
        ..Listing::default()
    };
    let mut out = Vec::new();
    show_refused(&listing, &mut out).unwrap();
    let want = "\
refused: a.yaml: Pod default/web: spec.x: unknown field (its last valid version goes on)
refused: b.yaml: Pod default/web: spec.x: unknown field (nothing of it runs)
";
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn ages_are_coarse() {
    let rows = [
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (3600, "60m"),
        (4 * 3600, "4h"),
        (3 * 86_400, "3d"),
    ];
    for (seconds, want) in rows {
        assert_eq!(human(SignedDuration::from_secs(seconds)), want);
    }
}
