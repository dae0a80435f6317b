use serde_json::json;

use super::*;
use crate::fixture::{at, deleted, exited, instance, observed, pod, running, sandbox, state};
use crate::observed::Instance;
use crate::state::{ProbeState, Rejection, StartFailure};

/// Actions in short form, for tables.
fn words(plan: &Plan) -> Vec<String> {
    plan.actions
        .iter()
        .map(|action| match action {
            Action::PrepareVolumes => "volumes".into(),
            Action::CreateSandbox { attempt } => format!("sandbox {attempt}"),
            Action::StopSandbox { id } => format!("stop-sandbox {id}"),
            Action::RemoveSandbox { id } => format!("remove-sandbox {id}"),
            Action::StartContainer {
                name,
                attempt,
                restart,
                ..
            } => {
                format!(
                    "{} {name} {attempt}",
                    if *restart { "restart" } else { "start" }
                )
            }
            Action::StopContainer {
                id, grace, reason, ..
            } => {
                format!("stop {id} {}s {reason:?}", grace.as_secs())
            }
            Action::RemoveContainer { id } => format!("remove {id}"),
            Action::Teardown => "teardown".into(),
            Action::RemoveLogs => "remove logs".into(),
            Action::Finish => "finish".into(),
        })
        .collect()
}

#[track_caller]
fn check(pod: &Pod, state: &PodState, observed: &Observed, want: &[&str]) -> Plan {
    let plan = step(pod, state, observed, at(100));
    assert_eq!(words(&plan), want);
    plan
}

#[test]
fn a_pod_comes_up_in_order() {
    let pod = pod(json!({}));
    let mut state = PodState::new(&pod, at(0));
    let nothing = Observed::default();
    check(&pod, &state, &nothing, &["volumes"]);
    state.volumes_ready = true;
    let plan = check(&pod, &state, &nothing, &[]);
    assert!(plan.waits_for_network);
    assert_eq!(plan.wake_at, Some(at(101)));
    state.network_ready = true;
    check(&pod, &state, &nothing, &["sandbox 0"]);
    check(&pod, &state, &observed(vec![]), &["start c 0"]);
    let plan = check(&pod, &state, &observed(vec![running(&pod, "c")]), &[]);
    assert_eq!(plan.wake_at, None);
}

#[test]
fn host_network_does_not_wait_for_the_network() {
    let pod = pod(json!({"hostNetwork": true}));
    let mut state = state(&pod);
    state.network_ready = false;
    check(&pod, &state, &Observed::default(), &["sandbox 0"]);
    let mut up = observed(vec![]);
    up.sandboxes[0].ips.clear();
    check(&pod, &state, &up, &["start c 0"]);
}

#[test]
fn work_in_flight_is_not_begun_twice_and_failed_work_waits() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let create = Action::CreateSandbox { attempt: 0 };
    state.begin(&pod, &create, at(100));
    check(&pod, &state, &Observed::default(), &[]);
    state.fail(&create.operation(), at(100));
    let plan = check(&pod, &state, &Observed::default(), &[]);
    assert_eq!(plan.wake_at, Some(at(101)));
    state.fail(&create.operation(), at(98));
    let plan = check(&pod, &state, &Observed::default(), &["sandbox 0"]);
    assert_eq!(plan.wake_at, None, "2 s after the second failure are over");
}

#[test]
fn init_containers_run_one_after_the_other() {
    let init =
        json!({"initContainers": [{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]});
    let pod = pod(init);
    let state = state(&pod);
    for (containers, want) in [
        (vec![], vec!["start i 0"]),
        (vec![running(&pod, "i")], vec![]),
        (vec![exited(&pod, "i", 0, 0)], vec!["start j 0"]),
        (vec![exited(&pod, "i", 0, 1)], vec!["restart i 1"]),
        (
            vec![exited(&pod, "i", 0, 0), exited(&pod, "j", 0, 0)],
            vec!["start c 0"],
        ),
        (
            vec![
                exited(&pod, "i", 0, 0),
                exited(&pod, "j", 0, 0),
                running(&pod, "c"),
            ],
            vec![],
        ),
        // The runtime lost the init containers; the app container proves their end.
        (vec![running(&pod, "c")], vec![]),
        (vec![exited(&pod, "c", 0, 1)], vec!["restart c 1"]),
    ] {
        check(&pod, &state, &observed(containers), &want);
    }
}

#[test]
fn restart_policies() {
    for (policy, exit_code, want) in [
        ("Always", 0, vec!["restart c 3"]),
        ("Always", 1, vec!["restart c 3"]),
        ("OnFailure", 1, vec!["restart c 3"]),
        ("OnFailure", 0, vec!["stop-sandbox s"]),
        ("Never", 1, vec!["stop-sandbox s"]),
        ("Never", 0, vec!["stop-sandbox s"]),
    ] {
        let pod = pod(json!({"restartPolicy": policy}));
        let ended = observed(vec![exited(&pod, "c", 2, exit_code)]);
        check(&pod, &state(&pod), &ended, &want);
    }
}

#[test]
fn one_of_two_containers_ends_while_the_other_lives() {
    let two = json!({"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]});
    let pod = pod(two);
    let half = observed(vec![exited(&pod, "c", 0, 1), running(&pod, "d")]);
    check(&pod, &state(&pod), &half, &[]);
}

#[test]
fn a_failed_init_container_with_policy_never_ends_the_pod() {
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}]}));
    let failed = observed(vec![exited(&pod, "i", 0, 1)]);
    let plan = check(&pod, &state(&pod), &failed, &["stop-sandbox s"]);
    assert!(plan.terminating);
}

#[test]
fn restarts_back_off() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let ended = observed(vec![exited(&pod, "c", 0, 1)]);
    let plan = check(&pod, &state, &ended, &["restart c 1"]);
    state.begin(&pod, &plan.actions[0], at(100));
    state.succeed(&plan.actions[0].operation());
    let ended = observed(vec![exited(&pod, "c", 1, 1)]);
    let plan = check(&pod, &state, &ended, &[]);
    assert_eq!(plan.backing_off, ["c"]);
    assert_eq!(plan.wake_at, Some(at(110)));
    assert_eq!(words(&step(&pod, &state, &ended, at(110))), ["restart c 2"]);
}

#[test]
fn failed_pulls_back_off_by_image() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let failure = |at| StartFailure {
        reason: "ErrImagePull",
        message: String::new(),
        at,
        announced: false,
    };
    state.fail_start(&pod, "c", failure(at(95)));
    let plan = check(&pod, &state, &observed(vec![]), &[]);
    assert_eq!(plan.wake_at, Some(at(105)));
    state.fail_start(&pod, "c", failure(at(100)));
    let plan = check(&pod, &state, &observed(vec![]), &[]);
    assert_eq!(plan.wake_at, Some(at(120)));
}

#[test]
fn a_dead_sandbox_is_stopped_then_replaced() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let dead = Observed {
        sandboxes: vec![sandbox("s", 0, false)],
        containers: vec![exited(&pod, "c", 0, 255)],
    };
    check(&pod, &state, &dead, &["stop-sandbox s"]);
    state.succeed(&Operation::StopSandbox("s".into()));
    check(&pod, &state, &dead, &["sandbox 1"]);
    let mut replaced = dead.clone();
    replaced.sandboxes.push(sandbox("t", 1, true));
    check(&pod, &state, &replaced, &["start c 1"]);
    let next = Instance {
        sandbox_id: "t".into(),
        ..instance(&pod, "c", 1, RunState::Running)
    };
    replaced.containers.push(next);
    check(&pod, &state, &replaced, &["remove-sandbox s"]);
}

#[test]
fn attempts_continue_where_the_source_left_off() {
    let mut pod = pod(json!({}));
    pod.status = serde_json::from_value(json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "ready": true, "image": "i", "imageID": "", "restartCount": 4,
         "containerID": "containerd://old", "state": {"running": {}}}]}))
    .unwrap();
    check(&pod, &state(&pod), &observed(vec![]), &["start c 5"]);
}

#[test]
fn running_containers_are_stopped_for_a_reason() {
    let pod = pod(json!({"terminationGracePeriodSeconds": 7, "containers": [
        {"name": "c", "image": "i:1", "livenessProbe": {"terminationGracePeriodSeconds": 3}}]}));
    let mut state = state(&pod);
    let mut old = running(&pod, "c");
    old.hash = "other".into();
    check(&pod, &state, &observed(vec![old]), &["stop c-0 7s Changed"]);
    for (probe, want) in [
        ("startup", "stop c-0 7s ProbeFailed(\"startup\")"),
        ("liveness", "stop c-0 3s ProbeFailed(\"liveness\")"),
    ] {
        let failed = ProbeState {
            failed: Some(probe),
            ..ProbeState::default()
        };
        state.probes.insert("c-0".into(), failed);
        check(&pod, &state, &observed(vec![running(&pod, "c")]), &[want]);
    }
}

#[test]
fn leftovers_are_removed() {
    let pod = pod(json!({}));
    let state = state(&pod);
    let created = instance(&pod, "c", 0, RunState::Created);
    check(&pod, &state, &observed(vec![created]), &["remove c-0"]);
    let many = observed(vec![
        exited(&pod, "c", 0, 1),
        exited(&pod, "c", 1, 1),
        instance(&pod, "c", 2, RunState::Running),
    ]);
    check(&pod, &state, &many, &["remove c-0"]);
}

#[test]
fn deletion_goes_down_in_order() {
    let pod = deleted(pod(json!({})), 5);
    let mut state = state(&pod);
    let mut seen = observed(vec![running(&pod, "c")]);
    let plan = check(&pod, &state, &seen, &["stop c-0 5s PodEnds"]);
    assert!(plan.terminating && !plan.ended);
    state.begin(&pod, &plan.actions[0], at(100));
    check(&pod, &state, &seen, &[]);
    seen.containers = vec![exited(&pod, "c", 0, 143)];
    state.succeed(&plan.actions[0].operation());
    check(&pod, &state, &seen, &["stop-sandbox s"]);
    state.succeed(&Operation::StopSandbox("s".into()));
    seen.sandboxes[0].ready = false;
    let plan = check(&pod, &state, &seen, &["remove-sandbox s"]);
    assert!(plan.ended);
    check(&pod, &state, &Observed::default(), &["teardown"]);
    state.succeed(&Operation::Teardown);
    check(&pod, &state, &Observed::default(), &["remove logs"]);
    state.succeed(&Operation::RemoveLogs);
    check(&pod, &state, &Observed::default(), &["finish"]);
    state.succeed(&Operation::Finish);
    check(&pod, &state, &Observed::default(), &[]);
}

#[test]
fn a_shorter_grace_interrupts_a_stop_under_way() {
    let slow = deleted(pod(json!({})), 30);
    let mut state = state(&slow);
    let seen = observed(vec![running(&slow, "c")]);
    let plan = check(&slow, &state, &seen, &["stop c-0 30s PodEnds"]);
    state.begin(&slow, &plan.actions[0], at(100));
    let fast = deleted(pod(json!({})), 0);
    check(&fast, &state, &seen, &["stop c-0 1s PodEnds"]);
    let slower = deleted(pod(json!({})), 60);
    check(&slower, &state, &seen, &[]);
}

#[test]
fn deletion_waits_for_what_is_being_made() {
    let pod = deleted(pod(json!({})), 1);
    let mut state = state(&pod);
    state.begin(&pod, &Action::CreateSandbox { attempt: 0 }, at(100));
    let plan = check(&pod, &state, &Observed::default(), &[]);
    assert!(plan.terminating && !plan.ended);
}

#[test]
fn a_pod_that_never_started_goes_at_once() {
    let pod = deleted(pod(json!({})), 30);
    let mut state = PodState::new(&pod, at(0));
    check(&pod, &state, &Observed::default(), &["teardown"]);
    state.torn_down = true;
    check(&pod, &state, &Observed::default(), &["remove logs"]);
    state.logs_removed = true;
    check(&pod, &state, &Observed::default(), &["finish"]);
}

#[test]
fn a_pod_gone_from_its_source_is_ended_like_a_deleted_one() {
    let pod = pod(json!({"terminationGracePeriodSeconds": 2}));
    let mut state = state(&pod);
    state.gone = true;
    check(
        &pod,
        &state,
        &observed(vec![running(&pod, "c")]),
        &["stop c-0 2s PodEnds"],
    );
}

#[test]
fn a_rejected_pod_starts_nothing_and_can_be_deleted() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    state.rejected = Some(Rejection {
        reason: "OutOfcpu",
        message: String::new(),
    });
    check(&pod, &state, &Observed::default(), &["teardown"]);
    state.torn_down = true;
    check(&pod, &state, &Observed::default(), &[]);
    let pod = deleted(pod, 0);
    check(&pod, &state, &Observed::default(), &["remove logs"]);
    state.logs_removed = true;
    check(&pod, &state, &Observed::default(), &["finish"]);
}

#[test]
fn a_finished_pod_keeps_its_containers_for_their_logs() {
    let pod = pod(json!({"restartPolicy": "Never"}));
    let mut state = state(&pod);
    state.stopped_sandboxes.insert("s".into());
    let mut seen = observed(vec![exited(&pod, "c", 0, 0)]);
    seen.sandboxes[0].ready = false;
    let plan = check(&pod, &state, &seen, &["teardown"]);
    assert!(plan.ended);
    state.torn_down = true;
    check(&pod, &state, &seen, &[]);
    // They and the logs go when it is deleted, which may be much later.
    let pod = deleted(pod, 30);
    check(&pod, &state, &seen, &["remove-sandbox s"]);
    check(&pod, &state, &Observed::default(), &["remove logs"]);
}

#[test]
fn the_deadline_ends_a_pod() {
    let pod = pod(json!({"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 1}));
    let state = state(&pod);
    let seen = observed(vec![running(&pod, "c")]);
    let early = step(&pod, &state, &seen, at(59));
    assert_eq!((words(&early), early.wake_at), (Vec::new(), Some(at(60))));
    check(&pod, &state, &seen, &["stop c-0 1s PodEnds"]);
}
