use serde_json::{Value, json};

use super::*;
use crate::fixture;

fn texts(found: Vec<FieldError>) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

/// One container `c` with `extra` fields, in a pod with the volume `v`.
#[track_caller]
fn check_container(extra: Value, want: &[&str]) {
    let mut item = json!({"name": "c", "image": "i:1"});
    for (key, value) in extra.as_object().unwrap() {
        item[key] = value.clone();
    }
    let made = fixture::pod(json!({
        "initContainers": [{"name": "i", "image": "i:1"}],
        "containers": [item], "volumes": [{"name": "v", "emptyDir": {}}]}));
    let want: Vec<String> = want
        .iter()
        .map(|text| format!("spec.containers[0].{text}"))
        .collect();
    assert_eq!(texts(pod(&made)), want, "{extra}");
}

#[track_caller]
fn check_pod(extra: Value, want: &[&str]) {
    assert_eq!(texts(pod(&fixture::pod(extra.clone()))), want, "{extra}");
}

#[test]
fn pods() {
    check_pod(json!({}), &[]);
    check_pod(
        json!({"containers": []}),
        &["spec.containers: at least one is required"],
    );
    check_pod(
        json!({"hostname": "", "restartPolicy": "Sometimes", "dnsPolicy": "First", "activeDeadlineSeconds": 0}),
        &[
            "spec.restartPolicy: \"Sometimes\" is none of Always, OnFailure, Never",
            "spec.dnsPolicy: \"First\" is none of ClusterFirst, ClusterFirstWithHostNet, Default, None",
            "spec.activeDeadlineSeconds: 0 is not between 1 and 2147483647",
        ],
    );
    check_pod(
        json!({"dnsPolicy": "None"}),
        &["spec.dnsConfig.nameservers: required where dnsPolicy is None"],
    );
    check_pod(
        json!({"dnsConfig": {"nameservers": ["x"]}, "hostAliases": [{"ip": "1.2.3"}],
            "hostname": "A", "subdomain": "a.b"}),
        &[
            "spec.dnsConfig.nameservers[0]: \"x\" is not an IP address",
            "spec.hostAliases[0].ip: \"1.2.3\" is not an IP address",
            "spec.hostname: \"A\" is not a DNS label",
            "spec.subdomain: \"a.b\" is not a DNS label",
        ],
    );
    let twice = json!({"initContainers": [{"name": "c", "image": "i"}]});
    check_pod(twice, &["spec.containers[0].name: \"c\" is there twice"]);
    let bad = json!({"containers": [{"name": "../x"}]});
    check_pod(
        bad,
        &[
            "spec.containers[0].name: \"../x\" is not a DNS label",
            "spec.containers[0].image: required",
        ],
    );
}

#[test]
fn policies_ports_and_environment() {
    check_container(
        json!({"imagePullPolicy": "Maybe", "terminationMessagePolicy": "Log"}),
        &[
            "imagePullPolicy: \"Maybe\" is none of Always, IfNotPresent, Never",
            "terminationMessagePolicy: \"Log\" is none of File, FallbackToLogsOnError",
        ],
    );
    check_container(
        json!({"ports": [
            {"containerPort": 0, "protocol": "ICMP"},
            {"containerPort": 1, "hostPort": 65536, "name": "80"},
            {"containerPort": 2, "name": "a"}, {"containerPort": 65535, "name": "a"},
            {"containerPort": 3, "hostPort": 3, "hostIP": "x"},
            {"containerPort": 4, "hostPort": 4}, {"containerPort": 5, "hostPort": 4},
            {"containerPort": 6, "hostPort": 4, "protocol": "UDP"},
            {"containerPort": 7, "hostPort": 4, "hostIP": "::1"}]}),
        &[
            "ports[0].containerPort: 0 is not between 1 and 65535",
            "ports[0].protocol: \"ICMP\" is none of TCP, UDP, SCTP",
            "ports[1].hostPort: 65536 is not between 1 and 65535",
            "ports[1].name: \"80\" is not a port's name",
            "ports[3].name: \"a\" is there twice",
            "ports[4].hostIP: \"x\" is not an IP address",
            "ports[6].hostPort: 4 is there twice",
        ],
    );
    let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    check_container(
        json!({"env": [{"name": "A=B"}, {"name": ""}, {"name": "a.b-c", "value": "x"},
                {"name": "F", "valueFrom": source, "value": "x"}, {"name": "G", "valueFrom": {}}],
            "envFrom": [{"prefix": "P"}]}),
        &[
            "env[0].name: \"A=B\" is not a variable's name",
            "env[1].name: required",
            "env[3].valueFrom: not together with value",
            "env[4].valueFrom: exactly one source is required",
            "envFrom[0]: exactly one of configMapRef and secretRef is required",
        ],
    );
    check_container(
        json!({"volumeMounts": [{"name": "w", "mountPath": "/a"}, {"name": "v", "mountPath": ""},
            {"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b:ro"},
            {"name": "v", "mountPath": "/c", "mountPropagation": "Both"}]}),
        &[
            "volumeMounts[0].name: no volume is named \"w\"",
            "volumeMounts[1].mountPath: required",
            "volumeMounts[2].mountPath: \"/a\" is there twice",
            "volumeMounts[3].mountPath: \"/b:ro\" has a colon",
            "volumeMounts[4].mountPropagation: \"Both\" is none of None, HostToContainer, Bidirectional",
        ],
    );
}

#[test]
fn resources() {
    let check = |resources: Value, want: &[&str]| {
        check_container(json!({"resources": resources}), want);
    };
    check(
        json!({"limits": {"cpu": "1500m", "memory": "1Gi", "a.b/c": "1"},
        "requests": {"cpu": "1.5", "memory": "1024Mi"}}),
        &[],
    );
    check(
        json!({"limits": {"cpu": "abc", "memory": "-1"}, "requests": {"cpu": "1"}}),
        &[
            "resources.limits[cpu]: \"abc\" is not a quantity",
            "resources.limits[memory]: \"-1\" is not a quantity",
        ],
    );
    check(
        json!({"limits": {"cpu": "1", "memory": "1G"}, "requests": {"cpu": "1001m", "memory": "1Gi"}}),
        &[
            "resources.requests[cpu]: 1001m is more than the limit 1",
            "resources.requests[memory]: 1Gi is more than the limit 1G",
        ],
    );
    check(
        json!({"limits": {"gpu": "1"}}),
        &["resources.limits[gpu]: not a resource: cpu, memory, ephemeral-storage, or DOMAIN/NAME"],
    );
}

#[test]
fn probes() {
    let tcp = json!({"port": 80});
    check_container(
        json!({"livenessProbe": {"tcpSocket": tcp, "periodSeconds": 0, "timeoutSeconds": -1,
            "initialDelaySeconds": -1, "successThreshold": 2, "failureThreshold": 0,
            "terminationGracePeriodSeconds": 0}}),
        &[
            "livenessProbe.initialDelaySeconds: -1 is less than 0",
            "livenessProbe.timeoutSeconds: -1 is less than 1",
            "livenessProbe.periodSeconds: 0 is less than 1",
            "livenessProbe.failureThreshold: 0 is less than 1",
            "livenessProbe.successThreshold: 2 is not 1, as it must be here",
            "livenessProbe.terminationGracePeriodSeconds: 0 is less than 1",
        ],
    );
    check_container(
        json!({"readinessProbe": {"tcpSocket": tcp, "successThreshold": 2, "initialDelaySeconds": 0,
            "terminationGracePeriodSeconds": 1}}),
        &["readinessProbe.terminationGracePeriodSeconds: not for a readiness probe"],
    );
    let one = "exactly one of exec, httpGet, tcpSocket and grpc is required";
    check_container(
        json!({"startupProbe": {}}),
        &[&format!("startupProbe: {one}")],
    );
    check_container(
        json!({"startupProbe": {"exec": {}, "tcpSocket": {"port": "HTTP"},
            "httpGet": {"port": 70000, "scheme": "FTP"}}}),
        &[
            &format!("startupProbe: {one}"),
            "startupProbe.exec.command: required",
            "startupProbe.httpGet.scheme: \"FTP\" is none of HTTP, HTTPS",
            "startupProbe.httpGet.port: 70000 is not between 1 and 65535",
            "startupProbe.tcpSocket.port: \"HTTP\" is not a port's name",
        ],
    );
}

#[test]
fn ineffective_fields() {
    let made = fixture::pod(json!({"terminationGracePeriodSeconds": -1, "containers": [
        {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": "web"}},
            "readinessProbe": {"tcpSocket": {"port": "http"}}}]}));
    assert_eq!(texts(pod(&made)), Vec::<String>::new());
    let want = [
        "spec.terminationGracePeriodSeconds: -1 is negative",
        "spec.containers[0].readinessProbe.tcpSocket.port: no port of the container is named \"http\"",
    ];
    assert_eq!(texts(ineffective(&made)), want);
}

#[test]
fn volumes() {
    check_pod(
        json!({"volumes": [
            {"name": "a", "emptyDir": {"medium": "Disk", "sizeLimit": "x"}},
            {"name": "a", "hostPath": {"path": "/a/../b", "type": "Dir"}},
            {"name": "B", "configMap": {"name": "c", "defaultMode": 0o1777,
                "items": [{"key": "k", "path": "../k"}]}},
            {"name": "p", "projected": {"sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "k", "mode": -1}]}}]}},
            {"name": "d", "downwardAPI": {"items": [
                {"path": "/x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}),
        &[
            "spec.volumes[0].emptyDir.medium: \"Disk\" is none of Memory, HugePages",
            "spec.volumes[0].emptyDir.sizeLimit: \"x\" is not a quantity",
            "spec.volumes[1].name: \"a\" is there twice",
            "spec.volumes[1].hostPath.type: \"Dir\" is none of DirectoryOrCreate, Directory, \
             FileOrCreate, File, Socket, CharDevice, BlockDevice",
            "spec.volumes[1].hostPath.path: must not have \"..\"",
            "spec.volumes[2].name: \"B\" is not a DNS label",
            "spec.volumes[2].configMap.defaultMode: 0o1777 is not between 0 and 0o777",
            "spec.volumes[2].configMap.items[0].path: \"../k\" must be relative, without \"..\"",
            "spec.volumes[3].projected.sources[0].secret.items[0].mode: 0o37777777777 is not \
             between 0 and 0o777",
            "spec.volumes[4].downwardAPI.items[0].path: \"/x\" must be relative, without \"..\"",
        ],
    );
}

#[track_caller]
fn check_service(spec: Value, want: &[&str]) {
    let object = json!({"metadata": {"name": "s"}, "spec": spec});
    let found = service(&serde_json::from_value(object).unwrap());
    assert_eq!(texts(found), want, "{spec}");
}

#[test]
fn services() {
    check_service(json!({"clusterIP": "None"}), &[]);
    check_service(
        json!({"ports": [{"port": 53, "name": "a"},
        {"port": 53, "name": "b", "protocol": "UDP", "targetPort": "dns"}]}),
        &[],
    );
    check_service(json!({}), &["spec.ports: at least one is required"]);
    check_service(
        json!({"type": "Cluster", "clusterIP": "10.0.0", "sessionAffinity": "Client",
            "ports": [{"port": 0, "protocol": "ICMP", "name": "A", "targetPort": 70000},
                {"port": 80, "targetPort": "80"}, {"port": 80, "name": "A"}]}),
        &[
            "spec.type: \"Cluster\" is none of ClusterIP, NodePort, LoadBalancer, ExternalName",
            "spec.sessionAffinity: \"Client\" is none of None, ClientIP",
            "spec.clusterIP: \"10.0.0\" is neither an IP address nor None",
            "spec.ports[0].port: 0 is not between 1 and 65535",
            "spec.ports[0].protocol: \"ICMP\" is none of TCP, UDP, SCTP",
            "spec.ports[0].name: \"A\" is not a DNS label",
            "spec.ports[0].targetPort: 70000 is not between 1 and 65535",
            "spec.ports[1].targetPort: \"80\" is not a port's name",
            "spec.ports[1].name: required where there are several ports",
            "spec.ports[2].name: \"A\" is not a DNS label",
            "spec.ports[2].name: \"A\" is there twice",
            "spec.ports[2].port: 80 is there twice for TCP",
        ],
    );
}

#[test]
fn data_keys() {
    let key = "a key has only letters, digits, '-', '_' and '.', and no \"..\" in front";
    let map = json!({"data": {"a": "", "../../x": ""}, "binaryData": {"a": "", "b/c": ""}});
    let want = [
        format!("data[../../x]: {key}"),
        format!("binaryData[b/c]: {key}"),
        "binaryData[a]: is in data, too".into(),
    ];
    assert_eq!(
        texts(config_map(&serde_json::from_value(map).unwrap())),
        want
    );
    let object = json!({"data": {"..": ""}, "stringData": {"": ""}});
    let want = [format!("data[..]: {key}"), format!("stringData[]: {key}")];
    assert_eq!(
        texts(secret(&serde_json::from_value(object).unwrap())),
        want
    );
}

#[test]
fn names() {
    let check = |meta: Value, want: &[&str]| {
        let meta = serde_json::from_value(meta).unwrap();
        assert_eq!(texts(metadata(&meta)), want);
    };
    check(json!({"name": "a.b", "namespace": "c"}), &[]);
    check(json!({}), &["metadata.name: required"]);
    check(
        json!({"name": "../x", "namespace": "a.b"}),
        &[
            "metadata.name: \"../x\" is not a DNS subdomain",
            "metadata.namespace: \"a.b\" is not a DNS label",
        ],
    );
}
