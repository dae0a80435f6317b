use super::super::cluster_ip::Saved;
use super::super::files::File;
use super::super::manifest::parse;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn state() -> State {
    let allocator = Allocator::new("10.96.0.0/24".parse().unwrap(), Saved::default());
    State::new("n1", allocator, Restored::default())
}

fn file(text: &str) -> File {
    File {
        objects: parse(text).unwrap(),
        modified: at(1),
    }
}

fn pod(image: &str) -> File {
    file(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, labels: {{app: web}}}}, \
         spec: {{terminationGracePeriodSeconds: 7, containers: [{{name: a, image: '{image}'}}]}}}}"
    ))
}

fn service(extra: &str) -> File {
    file(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: web}}, \
         spec: {{selector: {{app: web}}, ports: [{{port: 80}}]{extra}}}}}"
    ))
}

fn only<K>(objects: &Objects<K>) -> &Arc<K> {
    assert_eq!(objects.len(), 1);
    objects.values().next().unwrap()
}

#[test]
fn a_pod_is_assigned_to_this_node() {
    let mut state = state();
    state.files.offer("web.yaml", pod("i:1"));
    let (snapshot, problems) = state.reconcile(at(5));
    assert!(problems.is_empty());
    let pod = only(&snapshot.pods);
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    assert_eq!(pod.metadata.creation_timestamp.as_ref().unwrap().0, at(1));
    assert_eq!(
        pod.status.as_ref().unwrap().phase.as_deref(),
        Some("Pending")
    );
    let uid = pod.metadata.uid.as_deref().unwrap();
    assert_eq!(
        uid.split('-').map(str::len).collect::<Vec<_>>(),
        [8, 4, 4, 4, 12]
    );
}

#[test]
fn the_same_content_is_the_same_pod() {
    let uid = |name: &str, image: &str| {
        let mut state = state();
        state.files.offer(name, pod(image));
        only(&state.reconcile(at(5)).0.pods)
            .metadata
            .uid
            .clone()
            .unwrap()
    };
    assert_eq!(uid("web.yaml", "i:1"), uid("web.yaml", "i:1"));
    assert_ne!(uid("web.yaml", "i:1"), uid("web.yaml", "i:2"));
    assert_ne!(uid("web.yaml", "i:1"), uid("other.yaml", "i:1"));
}

#[test]
fn a_changed_pod_ends_before_its_successor_begins() {
    let mut state = state();
    state.files.offer("web.yaml", pod("i:1"));
    let old = only(&state.reconcile(at(5)).0.pods)
        .metadata
        .uid
        .clone()
        .unwrap();
    state.files.offer("web.yaml", pod("i:2"));
    let (snapshot, _) = state.reconcile(at(6));
    let ending = only(&snapshot.pods);
    assert_eq!(ending.metadata.uid.as_ref(), Some(&old));
    assert_eq!(
        ending.metadata.deletion_timestamp.as_ref().unwrap().0,
        at(13)
    );
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(7));
    let (again, _) = state.reconcile(at(9));
    assert!(
        Arc::ptr_eq(only(&again.pods), ending),
        "its end does not move"
    );
    state.finish_deletion(&old);
    let (snapshot, _) = state.reconcile(at(10));
    let new = only(&snapshot.pods);
    assert_ne!(new.metadata.uid.as_ref(), Some(&old));
    assert!(new.metadata.deletion_timestamp.is_none());
}

#[test]
fn a_removed_file_ends_its_pod() {
    let mut state = state();
    state.files.offer("web.yaml", pod("i:1"));
    let uid = only(&state.reconcile(at(5)).0.pods)
        .metadata
        .uid
        .clone()
        .unwrap();
    state.files.retain(|name| name != "web.yaml");
    assert!(
        only(&state.reconcile(at(6)).0.pods)
            .metadata
            .deletion_timestamp
            .is_some()
    );
    state.finish_deletion(&uid);
    assert!(state.reconcile(at(7)).0.pods.is_empty());
}

#[test]
fn readiness_reaches_the_slices() {
    let mut state = state();
    state.files.offer("web.yaml", pod("i:1"));
    state.files.offer("svc.yaml", service(""));
    let (snapshot, _) = state.reconcile(at(5));
    assert!(
        only(&snapshot.slices)
            .endpoints
            .as_ref()
            .unwrap()
            .is_empty()
    );
    let uid = only(&snapshot.pods).metadata.uid.clone().unwrap();
    let status: PodStatus = serde_json::from_value(serde_json::json!({
        "phase": "Running", "podIP": "10.244.0.5",
        "conditions": [{"type": "Ready", "status": "True"}],
    }))
    .unwrap();
    assert!(state.set_status(&uid, status.clone()));
    assert!(!state.set_status("nobody", status));
    let (snapshot, _) = state.reconcile(at(6));
    let endpoints = only(&snapshot.slices).endpoints.clone().unwrap();
    assert_eq!(endpoints[0].addresses, ["10.244.0.5"]);
    assert_eq!(state.statuses().len(), 1);
}

fn only_uid(snapshot: &Snapshot) -> String {
    only(&snapshot.pods).metadata.uid.clone().unwrap()
}

#[test]
fn a_pod_that_comes_back_is_another_one() {
    let mut state = state();
    state.files.offer("web.yaml", pod("i:1"));
    let first = only_uid(&state.reconcile(at(5)).0);
    state.files.retain(|_| false);
    state.reconcile(at(6));
    state.files.offer("web.yaml", pod("i:1"));
    let ending = state.reconcile(at(7)).0;
    assert_eq!(only_uid(&ending), first, "it still ends");
    assert!(only(&ending.pods).metadata.deletion_timestamp.is_some());
    state.finish_deletion(&first);
    let second = state.reconcile(at(8)).0;
    assert_ne!(only_uid(&second), first);
    assert!(only(&second.pods).metadata.deletion_timestamp.is_none());
}

/// As the next run of the agent would find it.
fn next_run(state: &mut State) -> State {
    let kept = serde_json::to_string(&state.unsaved().unwrap()).unwrap();
    let restored = serde_json::from_str(&kept).unwrap();
    let allocator = Allocator::new("10.96.0.0/24".parse().unwrap(), Saved::default());
    State::new("n1", allocator, restored)
}

#[test]
fn pods_are_the_same_after_a_restart() {
    let mut first = state();
    first.files.offer("web.yaml", pod("i:1"));
    let uid = only_uid(&first.reconcile(at(5)).0);
    first.files.retain(|_| false);
    first.reconcile(at(6));
    first.finish_deletion(&uid);
    first.files.offer("web.yaml", pod("i:1"));
    let uid = only_uid(&first.reconcile(at(7)).0);
    assert!(first.unsaved().is_some());
    assert!(first.unsaved().is_none(), "once");
    let status = PodStatus {
        pod_ip: Some("10.244.0.5".into()),
        ..PodStatus::default()
    };
    assert!(first.set_status(&uid, status));
    first.is_unsaved = true;
    let mut second = next_run(&mut first);
    second.files.offer("web.yaml", pod("i:1"));
    let snapshot = second.reconcile(at(9)).0;
    assert_eq!(only_uid(&snapshot), uid);
    let ip = only(&snapshot.pods).status.as_ref().unwrap().pod_ip.clone();
    assert_eq!(ip.as_deref(), Some("10.244.0.5"));
}

#[test]
fn an_end_goes_on_after_a_restart() {
    let mut first = state();
    first.files.offer("web.yaml", pod("i:1"));
    let uid = only_uid(&first.reconcile(at(5)).0);
    first.files.offer("web.yaml", pod("i:2"));
    first.reconcile(at(6));
    let mut second = next_run(&mut first);
    second.files.offer("web.yaml", pod("i:2"));
    let ending = second.reconcile(at(9)).0;
    assert_eq!(only_uid(&ending), uid, "the old one goes first");
    let end = only(&ending.pods).metadata.deletion_timestamp.clone();
    assert_eq!(end.unwrap().0, at(13), "its end does not move");
}

#[test]
fn services_get_addresses_and_conflicts_are_told_once() {
    let mut state = state();
    state
        .files
        .offer("a.yaml", service(", clusterIP: 10.96.0.9"));
    let (snapshot, _) = state.reconcile(at(5));
    let spec = only(&snapshot.services).spec.clone().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("10.96.0.9"));
    assert_eq!(spec.cluster_ips.unwrap(), ["10.96.0.9"]);
    let other = "{apiVersion: v1, kind: Service, metadata: {name: other}, \
                 spec: {ports: [{port: 80}], clusterIP: 10.96.0.9}}";
    state.files.offer("b.yaml", file(other));
    let (snapshot, problems) = state.reconcile(at(6));
    assert_eq!(snapshot.services.len(), 1);
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["b.yaml: Service default/other: spec.clusterIP: \
                        10.96.0.9 belongs to Service default/web"]
    );
    assert!(state.reconcile(at(7)).1.is_empty(), "told once");
    state.files.retain(|name| name != "a.yaml");
    state.reconcile(at(8));
    let (snapshot, _) = state.reconcile(at(9));
    assert!(
        snapshot.services.contains_key("default/other"),
        "free again"
    );
}

#[test]
fn headless_services_need_no_address() {
    let mut state = state();
    state.files.offer("svc.yaml", service(", clusterIP: None"));
    let (snapshot, problems) = state.reconcile(at(5));
    assert!(problems.is_empty());
    let spec = only(&snapshot.services).spec.as_ref().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
}
