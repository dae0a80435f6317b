use super::*;
use crate::pods::fixture::{Fixture, pod};

fn worker(fixture: &Fixture, desired: &watch::Sender<Desired>) -> Worker {
    Worker::new(fixture.shared(), desired.subscribe(), Arc::default(), None)
}

fn with_phase(phase: &str) -> Pod {
    let mut pod = pod("a");
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    pod
}

#[tokio::test]
async fn an_operation_that_breaks_off_is_tried_again() {
    let fixture = Fixture::new();
    let desired = watch::Sender::new(Desired {
        pod: pod("a"),
        gone: false,
    });
    let mut worker = worker(&fixture, &desired);
    let now = Timestamp::now();
    worker
        .state
        .begin(&worker.pod, &step::Action::PrepareVolumes, now);
    worker.ended(&Operation::Volumes, None);
    assert!(worker.state.in_flight().is_empty());
    assert!(worker.state.held_until(&Operation::Volumes, now).is_some());
}

#[tokio::test]
async fn the_status_of_a_pod_that_is_gone_is_not_waited_for() {
    let fixture = Fixture::new();
    let pod = with_phase("Running");
    let desired = watch::Sender::new(Desired { pod, gone: false });
    let mut worker = worker(&fixture, &desired);
    worker.statuses.send_replace(with_phase("Pending").status);
    worker.absorb();
    assert!(worker.reconcile_at.is_some());
    desired.send_modify(|desired| desired.gone = true);
    worker.absorb();
    assert!(worker.reconcile_at.is_none());
}
