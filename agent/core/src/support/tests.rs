use super::*;
use serde_json::json;

fn found(spec: serde_json::Value) -> Vec<String> {
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    unsupported(&serde_json::from_value(pod).unwrap())
}

#[track_caller]
fn pod_field(field: &str, value: serde_json::Value, want: &str) {
    let mut spec = json!({"containers": [{"name": "c"}]});
    spec[field] = value;
    assert_eq!(found(spec), [want]);
}

#[track_caller]
fn container_field(field: &str, value: serde_json::Value, want: &str) {
    let mut container = json!({"name": "c"});
    container[field] = value;
    assert_eq!(
        found(json!({"containers": [container]})),
        [format!("spec.containers[c].{want}")]
    );
}

#[test]
fn pod_fields_are_refused_by_name() {
    pod_field("hostUsers", json!(false), "spec.hostUsers: false");
    pod_field("runtimeClassName", json!("gvisor"), "spec.runtimeClassName");
    pod_field(
        "resourceClaims",
        json!([{"name": "x"}]),
        "spec.resourceClaims",
    );
    pod_field(
        "ephemeralContainers",
        json!([{"name": "x"}]),
        "spec.ephemeralContainers",
    );
    pod_field("os", json!({"name": "windows"}), "spec.os.name");
    let sysctls = json!({"sysctls": [{"name": "a", "value": "1"}]});
    pod_field("securityContext", sysctls, "spec.securityContext.sysctls");
    let selinux = json!({"seLinuxOptions": {"level": "s0"}});
    pod_field(
        "securityContext",
        selinux,
        "spec.securityContext.seLinuxOptions",
    );
}

#[test]
fn container_fields_are_refused_by_name() {
    container_field(
        "lifecycle",
        json!({"preStop": {"sleep": {"seconds": 1}}}),
        "lifecycle",
    );
    let mounts = json!([{"name": "v", "mountPath": "/d", "subPath": "x"}]);
    container_field("volumeMounts", mounts, "volumeMounts[/d].subPath");
    container_field(
        "livenessProbe",
        json!({"grpc": {"port": 1}}),
        "livenessProbe.grpc",
    );
    let seccomp = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}});
    container_field(
        "securityContext",
        seccomp,
        "securityContext.seccompProfile: Localhost",
    );
    container_field(
        "resources",
        json!({"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}),
        "resources.limits[nvidia.com/gpu]",
    );
    let sidecar =
        json!({"containers": [], "initContainers": [{"name": "s", "restartPolicy": "Always"}]});
    assert_eq!(found(sidecar), ["spec.initContainers[s].restartPolicy"]);
}

#[test]
fn volumes_are_refused_by_kind() {
    for (volume, want) in [
        (json!({"nfs": {"server": "s", "path": "/"}}), Some("nfs")),
        (
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            Some("persistentVolumeClaim"),
        ),
        (json!({"csi": {"driver": "d"}}), Some("csi")),
        (json!({"image": {"reference": "r"}}), Some("image")),
        (json!({"ephemeral": {}}), Some("ephemeral")),
        (
            json!({"emptyDir": {"medium": "HugePages"}}),
            Some("emptyDir.medium: HugePages"),
        ),
        (json!({"emptyDir": {}}), None),
        (json!({"hostPath": {"path": "/"}}), None),
        (json!({"configMap": {"name": "c"}}), None),
        (json!({"secret": {"secretName": "c"}}), None),
        (json!({"downwardAPI": {}}), None),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            None,
        ),
    ] {
        let mut volume = volume;
        volume["name"] = json!("v");
        let want: Vec<String> = want
            .into_iter()
            .map(|kind| format!("spec.volumes[v].{kind}"))
            .collect();
        assert_eq!(found(json!({"containers": [], "volumes": [volume]})), want);
    }
}

#[test]
fn what_is_supported_passes() {
    let spec = json!({
        "hostNetwork": true, "hostPID": true, "shareProcessNamespace": false, "hostUsers": true,
        "securityContext": {"runAsUser": 1, "fsGroup": 2, "supplementalGroups": [3],
            "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "c",
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "securityContext": {"privileged": true, "capabilities": {"add": ["NET_ADMIN"]}},
            "readinessProbe": {"httpGet": {"port": 80}},
            "livenessProbe": {"exec": {"command": ["true"]}},
            "startupProbe": {"tcpSocket": {"port": 80}}}]
    });
    assert_eq!(found(spec), Vec::<String>::new());
    let ports = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}]);
    let spec = json!({"containers": [{"name": "c", "ports": ports}]});
    assert_eq!(found(spec), Vec::<String>::new());
}
