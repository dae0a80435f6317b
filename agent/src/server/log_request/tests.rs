#![allow(clippy::needless_pass_by_value, reason = "json! makes values")]

use serde_json::{Value, json};

use super::*;

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1"},
        "status": {"containerStatuses": [status]},
    }))
    .unwrap()
}

fn container(restarts: u32, state: Value, last: Value) -> Pod {
    let id = state.get("running").map(|_| "containerd://now");
    pod(json!({
        "name": "app", "image": "", "imageID": "", "ready": false, "containerID": id,
        "restartCount": restarts, "state": state, "lastState": last,
    }))
}

fn ended(id: &str) -> Value {
    json!({"terminated": {"exitCode": 1, "containerID": id}})
}

#[track_caller]
fn check(pod: &Pod, previous: bool, want: Result<(&str, u32), &str>) {
    let got = instance(pod, "app", previous);
    let got = got
        .as_ref()
        .map(|i| (i.container_id.as_str(), i.attempt))
        .map_err(String::as_str);
    assert_eq!(got, want);
}

#[test]
fn the_current_instance_and_the_one_before() {
    let running = container(2, json!({"running": {}}), ended("containerd://old"));
    check(&running, false, Ok(("containerd://now", 2)));
    check(&running, true, Ok(("containerd://old", 1)));
    let over = container(0, ended("containerd://once"), json!({}));
    check(&over, false, Ok(("containerd://once", 0)));
    let none = Err(r#"previous terminated container "app" in pod "web" not found"#);
    check(&over, true, none);
}

#[test]
fn between_two_instances_the_last_is_both() {
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let crashing = container(3, waiting, ended("containerd://old"));
    check(&crashing, false, Ok(("containerd://old", 3)));
    check(&crashing, true, Ok(("containerd://old", 3)));
}

#[test]
fn waiting_says_for_what() {
    let waiting = |reason: &str| container(0, json!({"waiting": {"reason": reason}}), json!({}));
    let text = |rest: &str| format!(r#"container "app" in pod "web" is {rest}"#);
    let cases = [
        ("ErrImagePull", "waiting to start: image can't be pulled"),
        (
            "ImagePullBackOff",
            "waiting to start: trying and failing to pull image",
        ),
        ("ContainerCreating", "waiting to start: ContainerCreating"),
    ];
    for (reason, want) in cases {
        check(&waiting(reason), false, Err(&text(want)));
    }
    check(
        &container(0, json!({}), json!({})),
        false,
        Err(&text("waiting to start - no logs yet")),
    );
    let other = instance(&waiting("x"), "nobody", false).unwrap_err();
    assert_eq!(other, r#"container "nobody" in pod "web" is not available"#);
}

#[test]
fn only_the_same_instance_counts_as_running() {
    let running = container(2, json!({"running": {}}), ended("containerd://old"));
    assert!(is_running(
        &running,
        "app",
        &instance(&running, "app", false).unwrap()
    ));
    assert!(!is_running(
        &running,
        "app",
        &instance(&running, "app", true).unwrap()
    ));
}

#[test]
fn logs_are_where_the_runtime_is_told_to_write_them() {
    let path = log_path(
        Path::new("/var/log/pods"),
        &pod(json!({
            "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        })),
        "app",
        3,
    );
    assert_eq!(path, Path::new("/var/log/pods/shop_web_u1/app/3.log"));
}

fn options(query: Value) -> Result<LogOptions, String> {
    let query: LogQuery = serde_json::from_value(query).unwrap();
    query.options(Timestamp::from_second(1000).unwrap())
}

#[test]
fn queries_are_read() {
    let all = options(json!({
        "follow": "true", "timestamps": "1", "tailLines": "5", "limitBytes": "9",
        "sinceSeconds": "10",
    }))
    .unwrap();
    assert!(all.follow && all.timestamps && !all.previous);
    assert_eq!((all.tail_lines, all.limit_bytes), (Some(5), Some(9)));
    assert_eq!(all.since, Some(Timestamp::from_second(990).unwrap()));
    let at = options(json!({"sinceTime": "1970-01-01T00:00:05Z"})).unwrap();
    assert_eq!(at.since, Some(Timestamp::from_second(5).unwrap()));
}

#[test]
fn bad_queries_name_the_parameter() {
    let cases = [
        ("follow", "maybe"),
        ("tailLines", "-1"),
        ("limitBytes", "0"),
        ("sinceSeconds", "x"),
        ("sinceTime", "yesterday"),
    ];
    for (parameter, value) in cases {
        let error = options(json!({parameter: value})).unwrap_err();
        assert!(error.starts_with(parameter), "{error}");
    }
    let both = options(json!({"sinceSeconds": "1", "sinceTime": "1970-01-01T00:00:05Z"}));
    assert!(both.unwrap_err().contains("at most one"));
}
