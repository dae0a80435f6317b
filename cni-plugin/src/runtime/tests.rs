use serde_json::json;

use super::*;

fn parse(runtime: &Value) -> Result<Runtime, Error> {
    let Value::Object(object) = json!({ RUNTIME: runtime }) else {
        unreachable!()
    };
    Runtime::parse(&object)
}

fn ports(runtime: &Value) -> Vec<String> {
    let pod: Vec<IpAddr> = vec!["10.1.2.3".parse().unwrap(), "fd00::3".parse().unwrap()];
    let ports = parse(runtime).unwrap().host_ports(&pod).unwrap();
    let text = |p: &HostPort| format!("{p} {} {}", p.pod, p.pod_port);
    ports.iter().map(text).collect()
}

#[track_caller]
fn refused(runtime: &Value, code: u32, text: &str) {
    let error = parse(runtime).unwrap_err();
    assert_eq!(error.code(), code);
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn case_11_keys_in_both_spellings() {
    let go = json!({"portMappings": [
        {"HostPort": 80, "ContainerPort": 8080, "Protocol": "TCP", "HostIP": ""}
    ]});
    let camel = json!({"portMappings": [
        {"hostPort": 80, "containerPort": 8080, "protocol": "tcp"},
        {"hostPort": 80, "containerPort": 8080},
        {"hostPort": 0, "containerPort": 9},
    ]});
    assert_eq!(ports(&go), ports(&camel));
    assert_eq!(ports(&go), ["80/tcp 10.1.2.3 8080", "80/tcp fd00::3 8080"]);
}

#[test]
fn host_ips() {
    let at = |ip: &str| {
        ports(&json!({"portMappings": [{"hostPort": 5, "containerPort": 6, "hostIP": ip}]}))
    };
    assert_eq!(at("").len(), 2);
    assert_eq!(at("0.0.0.0"), ["5/tcp 10.1.2.3 6"]);
    assert_eq!(at("::"), ["5/tcp fd00::3 6"]);
    assert_eq!(at("127.0.0.1"), ["127.0.0.1:5/tcp 10.1.2.3 6"]);
    assert_eq!(at("::ffff:192.0.2.1"), ["192.0.2.1:5/tcp 10.1.2.3 6"]);
    assert_eq!(at("fd00::1"), ["[fd00::1]:5/tcp fd00::3 6"]);
    let twice = json!({"portMappings": [
        {"hostPort": 5, "containerPort": 6},
        {"hostPort": 5, "containerPort": 6, "hostIP": "0.0.0.0"},
    ]});
    assert_eq!(ports(&twice), ["5/tcp 10.1.2.3 6", "5/tcp fd00::3 6"]);
    let six = json!({"portMappings": [{"hostPort": 5, "containerPort": 6, "hostIP": "fd00::1"}]});
    let only_v4 = ["10.1.2.3".parse().unwrap()];
    let error = parse(&six).unwrap().host_ports(&only_v4).unwrap_err();
    assert_eq!(error.code(), 7);
}

#[test]
fn what_is_empty_or_for_others_is_nothing() {
    for nothing in [
        json!({}),
        json!({"portMappings": [], "mac": "", "ips": null}),
        json!({"dns": {"servers": []}, "aliases": {"x": ["y"]}, "cgroupPath": "/x"}),
    ] {
        assert_eq!(parse(&nothing).unwrap(), Runtime::default());
    }
}

#[test]
fn one_port_of_the_host_leads_to_one_of_the_pod() {
    let entry = |port, ip| json!({"hostPort": 80, "containerPort": port, "hostIP": ip});
    refused(
        &json!({"portMappings": [entry(1, ""), entry(2, "")]}),
        7,
        "runtimeConfig.portMappings[1].hostPort: 80 leads to the pod's port 1 already",
    );
    refused(
        &json!({"portMappings": [entry(1, "::"), entry(2, "")]}),
        7,
        "80 leads to the pod's port 1 already",
    );
    let apart = json!({"portMappings": [entry(1, "192.0.2.1"), entry(2, "192.0.2.2")]});
    assert_eq!(ports(&apart).len(), 2);
}

#[test]
fn wrong_ones_are_named() {
    let ports = |entry: Value| json!({"portMappings": [entry]});
    let path = "runtimeConfig.portMappings[0]";
    let key = |key: &str| format!("{path}.{key}");
    for (entry, code, text) in [
        (json!({"hostPort": 70000}), 7, key("hostPort")),
        (json!({"hostprot": 80}), 7, key("hostprot: unknown key")),
        (
            json!({"hostPort": 80}),
            7,
            key("containerPort: is required"),
        ),
        (
            json!({"hostPort": 80, "containerPort": 80, "protocol": "dccp"}),
            2,
            key("protocol=dccp"),
        ),
        (
            json!({"hostPort": 80, "containerPort": 80, "hostIP": "x"}),
            7,
            key("hostIP"),
        ),
        (
            json!({"hostPort": 80, "containerPort": 80, "hostIP": "::1"}),
            2,
            key("hostIP=::1"),
        ),
    ] {
        refused(&ports(entry), code, &text);
    }
    refused(&json!({"portMappings": 7}), 7, "runtimeConfig.portMappings");
    refused(
        &json!({"infinibandGUID": "x"}),
        2,
        "runtimeConfig.infinibandGUID",
    );
}
