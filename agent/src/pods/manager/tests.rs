use super::*;
use crate::pods::fixture::{Fixture, pod};

fn deleted(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    pod
}

/// Whether the pod's worker is told that the pod is wanted.
fn is_wanted(manager: &Manager, uid: &str) -> bool {
    !manager.handles[uid].is_ending()
}

#[tokio::test]
async fn a_pod_that_comes_back_while_it_ends_runs_after_its_end() {
    let fixture = Fixture::new();
    for end in [Event::Delete(pod("a")), Event::Apply(deleted(pod("a")))] {
        let mut manager = Manager::new(fixture.shared());
        manager.source_event(Event::Apply(pod("a")));
        assert!(is_wanted(&manager, "a"));
        manager.source_event(end);
        manager.source_event(Event::Apply(pod("a")));
        assert!(!is_wanted(&manager, "a"), "its end goes on");
        manager.worker_ended("a");
        assert!(is_wanted(&manager, "a"), "and then it begins anew");
    }
}

#[tokio::test]
async fn a_pod_that_comes_back_and_goes_again_stays_gone() {
    let fixture = Fixture::new();
    let mut manager = Manager::new(fixture.shared());
    manager.source_event(Event::Apply(pod("a")));
    manager.source_event(Event::Delete(pod("a")));
    manager.source_event(Event::Apply(pod("a")));
    manager.source_event(Event::Delete(pod("a")));
    manager.worker_ended("a");
    assert!(manager.handles.is_empty());
}

#[tokio::test]
async fn a_worker_that_breaks_off_is_replaced() {
    let fixture = Fixture::new();
    let mut manager = Manager::new(fixture.shared());
    manager.source_event(Event::Apply(pod("a")));
    manager.replace_worker("a".to_owned());
    assert!(is_wanted(&manager, "a"));
    assert_eq!(
        manager.workers.len(),
        2,
        "the one that broke off, and the new one"
    );
}
