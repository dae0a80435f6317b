use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::fixture::{at, deleted, exited, instance, observed, pod, running, state};
use crate::state::{PodState, ProbeState, Rejection, StartFailure};
use crate::step::Action;

fn status_at(pod: &Pod, state: &PodState, observed: &Observed, now: Timestamp) -> Value {
    let node = NodeFacts {
        ips: vec!["192.168.0.1".parse().unwrap()],
        runtime_name: "containerd".into(),
    };
    serde_json::to_value(status(pod, state, observed, &node, now)).unwrap()
}

fn now(pod: &Pod, state: &PodState, observed: &Observed) -> Value {
    status_at(pod, state, observed, at(100))
}

/// `Type=Status(Reason)` of the conditions that the agent owns.
fn conditions(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|c| {
            let reason = c["reason"]
                .as_str()
                .map(|r| format!("({r})"))
                .unwrap_or_default();
            format!(
                "{}={}{reason}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap()
            )
        })
        .collect()
}

fn first(status: &Value) -> &Value {
    &status["containerStatuses"][0]
}

#[test]
fn pending_then_running() {
    let pod = pod(json!({}));
    let state = state(&pod);
    let status = now(&pod, &state, &Observed::default());
    assert_eq!(status["phase"], "Pending");
    assert_eq!(
        first(&status)["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    let want = [
        "PodReadyToStartContainers=False",
        "Initialized=True",
        "Ready=False(ContainersNotReady)",
        "ContainersReady=False(ContainersNotReady)",
        "PodScheduled=True",
    ];
    assert_eq!(conditions(&status), want);
    assert_eq!(
        status["conditions"][2]["message"],
        "containers with unready status: [c]"
    );

    let status = now(&pod, &state, &observed(vec![running(&pod, "c")]));
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["podIP"], "10.0.0.1");
    assert_eq!(status["podIPs"], json!([{"ip": "10.0.0.1"}]));
    assert_eq!(status["hostIP"], "192.168.0.1");
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(status["startTime"], "1970-01-01T00:00:00Z");
    let container = first(&status);
    assert_eq!(container["ready"], true);
    assert_eq!(container["started"], true);
    assert_eq!(container["containerID"], "containerd://c-0");
    assert_eq!(container["imageID"], "sha256:1");
    assert_eq!(
        container["state"]["running"]["startedAt"],
        "1970-01-01T00:00:10Z"
    );
    let yes = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    assert_eq!(conditions(&status), yes.map(|c| format!("{c}=True")));
}

#[test]
fn host_network_pods_have_the_node_address() {
    let pod = pod(json!({"hostNetwork": true}));
    let mut seen = observed(vec![running(&pod, "c")]);
    seen.sandboxes[0].ips.clear();
    assert_eq!(now(&pod, &state(&pod), &seen)["podIP"], "192.168.0.1");
}

#[test]
fn init_containers_hold_the_phase() {
    let pod =
        pod(json!({"initContainers": [{"name": "i", "image": "x"}, {"name": "j", "image": "x"}]}));
    let state = state(&pod);
    let status = now(
        &pod,
        &state,
        &observed(vec![exited(&pod, "i", 0, 0), running(&pod, "j")]),
    );
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    assert_eq!(status["initContainerStatuses"][1]["ready"], false);
    assert_eq!(
        first(&status)["state"]["waiting"]["reason"],
        "PodInitializing"
    );
    assert_eq!(
        conditions(&status)[1],
        "Initialized=False(ContainersNotInitialized)"
    );
    let message = &status["conditions"][1]["message"];
    assert_eq!(message, "containers with incomplete status: [j]");
}

#[test]
fn probes_decide_readiness() {
    let probe = json!({"httpGet": {"port": 80}});
    let with = |probes: &[&str]| {
        let mut container = json!({"name": "c", "image": "i:1"});
        for name in probes {
            container[*name] = probe.clone();
        }
        pod(json!({"containers": [container]}))
    };
    for (probes, ready, started, want) in [
        (&["readinessProbe"][..], None, None, (true, false)),
        (&["readinessProbe"], Some(false), None, (true, false)),
        (&["readinessProbe"], Some(true), None, (true, true)),
        (&["startupProbe"], None, None, (false, false)),
        (&["startupProbe"], None, Some(true), (true, true)),
        (
            &["startupProbe", "readinessProbe"],
            Some(true),
            Some(false),
            (false, false),
        ),
        (&["livenessProbe"], None, None, (true, true)),
    ] {
        let pod = with(probes);
        let mut state = state(&pod);
        let known = ProbeState {
            ready,
            started,
            failed: None,
        };
        state.probes.insert("c-0".into(), known);
        let status = now(&pod, &state, &observed(vec![running(&pod, "c")]));
        let got = (
            first(&status)["started"] == true,
            first(&status)["ready"] == true,
        );
        assert_eq!(got, want, "{probes:?} {ready:?} {started:?}");
    }
}

#[test]
fn a_new_agent_keeps_the_readiness_it_finds() {
    let mut pod = pod(json!({"containers": [
        {"name": "c", "image": "i:1", "readinessProbe": {"httpGet": {"port": 80}}}]}));
    let seen = observed(vec![running(&pod, "c")]);
    let mut before = state(&pod);
    before.probes.insert(
        "c-0".into(),
        ProbeState {
            ready: Some(true),
            ..ProbeState::default()
        },
    );
    let published = now(&pod, &before, &seen);
    pod.status = Some(serde_json::from_value(published.clone()).unwrap());
    let after = PodState::new(&pod, at(500));
    assert_eq!(
        status_at(&pod, &after, &seen, at(500)),
        published,
        "not one field flips"
    );
}

#[test]
fn gates_keep_a_pod_unready() {
    let mut pod = pod(json!({"readinessGates": [{"conditionType": "lb"}]}));
    let seen = observed(vec![running(&pod, "c")]);
    let status = now(&pod, &state(&pod), &seen);
    assert_eq!(
        conditions(&status)[2],
        "Ready=False(ReadinessGatesNotReady)"
    );
    assert_eq!(conditions(&status)[3], "ContainersReady=True");
    pod.status = serde_json::from_value(json!({"conditions": [
        {"type": "lb", "status": "True", "reason": "Foreign"}]}))
    .unwrap();
    let status = now(&pod, &state(&pod), &seen);
    assert_eq!(conditions(&status)[2], "Ready=True");
    assert_eq!(
        conditions(&status)[5],
        "lb=True(Foreign)",
        "foreign conditions are kept"
    );
}

#[test]
fn crash_loop() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let ended = observed(vec![exited(&pod, "c", 1, 3)]);
    let status = now(&pod, &state, &ended);
    assert_eq!(first(&status)["state"]["terminated"]["reason"], "Error");
    assert_eq!(first(&status)["restartCount"], 1);
    let start = Action::StartContainer {
        name: "c".into(),
        attempt: 1,
        sandbox_id: "s".into(),
        restart: true,
    };
    state.begin(&pod, &start, at(99));
    state.succeed(&start.operation());
    let status = now(&pod, &state, &ended);
    assert_eq!(status["phase"], "Running");
    let waiting = &first(&status)["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert_eq!(
        waiting["message"],
        "back-off 10s restarting failed container=c pod=p_ns(u)"
    );
    let last = &first(&status)["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["containerID"]),
        (&json!(3), &json!("containerd://c-1"))
    );
    let again = observed(vec![
        exited(&pod, "c", 1, 3),
        instance(&pod, "c", 2, RunState::Running),
    ]);
    let status = now(&pod, &state, &again);
    assert_eq!(first(&status)["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(first(&status)["restartCount"], 2);
}

#[test]
fn pull_failures() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let failure = StartFailure {
        reason: "ErrImagePull",
        message: "no route".into(),
        at: at(99),
        announced: false,
    };
    state.fail_start(&pod, "c", failure);
    let waiting = |second| {
        let status = status_at(&pod, &state, &observed(vec![]), at(second));
        first(&status)["state"]["waiting"].clone()
    };
    assert_eq!(
        waiting(100),
        json!({"reason": "ErrImagePull", "message": "no route"})
    );
    let message = "Back-off pulling image \"i:1\": ErrImagePull: no route";
    assert_eq!(
        waiting(101),
        json!({"reason": "ImagePullBackOff", "message": message})
    );
}

#[test]
fn final_phases() {
    for (policy, codes, want) in [
        ("Never", [0, 0], "Succeeded"),
        ("Never", [0, 1], "Failed"),
        ("OnFailure", [0, 0], "Succeeded"),
        ("OnFailure", [0, 1], "Running"),
        ("Always", [0, 0], "Running"),
    ] {
        let pod = pod(json!({"restartPolicy": policy, "containers": [
            {"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]}));
        let seen = observed(vec![
            exited(&pod, "c", 0, codes[0]),
            exited(&pod, "d", 0, codes[1]),
        ]);
        let status = now(&pod, &state(&pod), &seen);
        assert_eq!(status["phase"], want, "{policy} {codes:?}");
        if want == "Succeeded" {
            assert_eq!(conditions(&status)[1], "Initialized=True(PodCompleted)");
            assert_eq!(conditions(&status)[2], "Ready=False(PodCompleted)");
            assert_eq!(first(&status)["state"]["terminated"]["reason"], "Completed");
        }
    }
}

#[test]
fn a_terminal_phase_is_never_left() {
    let mut pod = pod(json!({}));
    pod.status = serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted"})).unwrap();
    let status = now(&pod, &state(&pod), &observed(vec![running(&pod, "c")]));
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("Evicted"))
    );
    assert_eq!(conditions(&status)[2], "Ready=False(PodFailed)");
}

#[test]
fn deleted_pods_end_when_nothing_runs() {
    let pod = deleted(pod(json!({})), 30);
    let state = state(&pod);
    assert_eq!(
        now(&pod, &state, &observed(vec![running(&pod, "c")]))["phase"],
        "Running"
    );
    let status = now(&pod, &state, &observed(vec![exited(&pod, "c", 0, 143)]));
    assert_eq!(status["phase"], "Failed");
    assert_eq!(first(&status)["state"]["terminated"]["exitCode"], 143);
    assert_eq!(
        now(&pod, &state, &observed(vec![exited(&pod, "c", 0, 0)]))["phase"],
        "Succeeded"
    );
    let status = now(&pod, &state, &Observed::default());
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        first(&status)["state"]["terminated"]["reason"],
        "ContainerStatusUnknown"
    );
}

#[test]
fn rejection_and_deadline() {
    let plain = pod(json!({}));
    let mut rejected = state(&plain);
    rejected.rejected = Some(Rejection {
        reason: "OutOfcpu",
        message: "no CPU left".into(),
    });
    let status = now(&plain, &rejected, &Observed::default());
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["reason"], "OutOfcpu");
    assert_eq!(status["message"], "Pod was rejected: no CPU left");

    let timed = pod(json!({"activeDeadlineSeconds": 50}));
    let late = now(
        &timed,
        &state(&timed),
        &observed(vec![running(&timed, "c")]),
    );
    assert_eq!(
        late["phase"], "Running",
        "not before the containers are gone"
    );
    let late = now(
        &timed,
        &state(&timed),
        &observed(vec![exited(&timed, "c", 0, 137)]),
    );
    assert_eq!(
        (&late["phase"], &late["reason"]),
        (&json!("Failed"), &json!("DeadlineExceeded"))
    );
}

#[test]
fn transition_times_move_only_with_the_status() {
    let mut pod = pod(json!({}));
    let seen = observed(vec![running(&pod, "c")]);
    let first_status = now(&pod, &state(&pod), &seen);
    pod.status = Some(serde_json::from_value(first_status.clone()).unwrap());
    let later = status_at(&pod, &state(&pod), &seen, at(900));
    assert_eq!(later["conditions"], first_status["conditions"]);
}

#[test]
fn an_old_echo_changes_nothing_and_foreign_parts_are_taken() {
    let pod = pod(json!({}));
    let mut state = state(&pod);
    let seen = observed(vec![running(&pod, "c")]);
    let pending = now(&pod, &state, &Observed::default());
    let ready = now(&pod, &state, &seen);
    state.api_status = serde_json::from_value(ready.clone()).unwrap();
    state.absorb(&serde_json::from_value(pending).unwrap());
    assert_eq!(status_at(&pod, &state, &seen, at(900)), ready);
    let foreign = json!({"phase": "Failed", "reason": "Evicted",
        "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
    state.absorb(&serde_json::from_value(foreign).unwrap());
    let status = now(&pod, &state, &seen);
    assert_eq!(status["reason"], "Evicted");
    assert!(conditions(&status).contains(&"DisruptionTarget=True".to_owned()));
}

#[test]
fn an_ephemeral_container_says_that_it_is_not_supported() {
    let debugged = json!({"ephemeralContainers": [{"name": "debugger", "image": "d:1"}]});
    let pod = pod(debugged);
    let mut state = state(&pod);
    assert_eq!(new_ephemeral(&pod, &state.api_status), ["debugger"]);
    let status = now(&pod, &state, &observed(vec![running(&pod, "c")]));
    let said = &status["ephemeralContainerStatuses"][0];
    assert_eq!(said["name"], "debugger");
    assert_eq!(said["image"], "d:1");
    assert_eq!(said["state"]["waiting"]["reason"], EPHEMERAL_REASON);
    assert_eq!(said["state"]["waiting"]["message"], EPHEMERAL_MESSAGE);
    // The pod itself is as before.
    assert_eq!(status["phase"], "Running");
    assert_eq!(conditions(&status)[2], "Ready=True");

    // Told once: also not again by another agent, which finds this status.
    state.api_status = serde_json::from_value(status).unwrap();
    assert_eq!(new_ephemeral(&pod, &state.api_status), [""; 0]);
    let path = spec::field_path(&pod, "debugger");
    assert_eq!(path, "spec.ephemeralContainers{debugger}");
}

#[test]
fn a_pod_without_ephemeral_containers_says_nothing_of_them() {
    let pod = pod(json!({}));
    let status = now(&pod, &state(&pod), &Observed::default());
    assert_eq!(status["ephemeralContainerStatuses"], Value::Null);
}
