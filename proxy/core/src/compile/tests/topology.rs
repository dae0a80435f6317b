//! Cases 140 to 151, 160 to 173 of the acceptance list: which endpoints are in the
//! Cluster set and which in the Local set.

use super::*;

/// `ADDRESS [here|there] STATE [nodes=n1,n2] [zones=a,b]`; the state is `ready`,
/// `leaving` (serves while it terminates), `gone` (terminates, does not serve),
/// `unready`, `starting` (serves, is not ready).
fn endpoint(text: &str) -> Value {
    let words: Vec<&str> = text.split(' ').collect();
    let (ready, serving, terminating) = match words[2] {
        "ready" => (true, true, false),
        "leaving" => (false, true, true),
        "gone" => (false, false, true),
        "unready" => (false, false, false),
        "starting" => (false, true, false),
        other => panic!("state {other}"),
    };
    let hints = |key: &str| {
        let list = words.iter().find_map(|word| word.strip_prefix(key));
        let names = list.into_iter().flat_map(|list| list.split(','));
        names.map(|name| json!({"name": name})).collect::<Vec<_>>()
    };
    json!({
        "addresses": [format!("10.0.1.{}", words[0])],
        "nodeName": if words[1] == "here" { "n1" } else { "n2" },
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "hints": {"forNodes": hints("nodes="), "forZones": hints("zones=")},
    })
}

/// The last octets of the two sets, in zone a unless said.
#[track_caller]
fn check_in(zone: Option<&str>, endpoints: &[&str], cluster: &str, local: &str) {
    let list: Vec<Value> = endpoints.iter().map(|text| endpoint(text)).collect();
    let mut model = Model::new();
    let mut apply = |slice: Value| model.apply_slice(&serde_json::from_value(slice).unwrap());
    apply(slice("s", "web", http(80), json!(list)));
    model.apply_service(&serde_json::from_value(web()).unwrap());
    let node = Node {
        zone: zone.map(ToOwned::to_owned),
        ..Node::named("n1")
    };
    let compiled = compile(&model, &node);
    let port = compiled.desired.v4.services.values().next().unwrap();
    let octets = |set: &[Endpoint]| {
        let last = |e: &Endpoint| e.addr.ip().to_string().replace("10.0.1.", "");
        set.iter().map(last).collect::<Vec<_>>().join(" ")
    };
    let found = (octets(&port.cluster), octets(&port.local));
    assert_eq!(
        found,
        (cluster.to_owned(), local.to_owned()),
        "{endpoints:?}"
    );
}

#[track_caller]
fn check(endpoints: &[&str], cluster: &str, local: &str) {
    check_in(Some("a"), endpoints, cluster, local);
}

#[test]
fn terminating_fallback_is_decided_for_each_set() {
    // 140, 141
    let mut list = vec![
        "1 here ready",
        "2 here ready",
        "3 here leaving",
        "4 here gone",
        "5 there ready",
    ];
    check(&list, "1 2 5", "1 2");
    // 142, 143, 148
    list[..2].copy_from_slice(&["2 here leaving", "3 here leaving"]);
    list.remove(2);
    check(&list, "5", "2 3");
    // 144
    check(&["5 there leaving"], "5", "");
    // 46, 47, 145
    check(&["1 here gone", "5 there gone"], "", "");
    check(&["1 here starting", "5 there unready"], "", "");
    // 146
    check(
        &[
            "1 here ready",
            "2 here ready",
            "3 there leaving",
            "4 there gone",
            "5 there ready",
        ],
        "1 2 5",
        "1 2",
    );
    // 147
    check(
        &[
            "2 here leaving",
            "3 here leaving",
            "4 here gone",
            "5 there leaving",
        ],
        "2 3 5",
        "2 3",
    );
    // 151: hints do not matter to the fallback.
    check(
        &["1 here leaving zones=b", "5 there leaving zones=a"],
        "1 5",
        "1",
    );
}

#[test]
fn zones() {
    let hinted = [
        "1 here ready zones=a",
        "2 there ready zones=a",
        "3 here ready zones=b",
        "4 there ready zones=b",
    ];
    // 160, 172, 173: the Local set does not look at hints.
    check(&hinted, "1 2", "1 3");
    // 161
    let mut one_without = hinted;
    one_without[3] = "4 there ready";
    check(&one_without, "1 2 3 4", "1 3");
    // 162
    check_in(None, &hinted, "1 2 3 4", "1 3");
    check_in(Some(""), &hinted, "1 2 3 4", "1 3");
    // 163
    check_in(Some("c"), &hinted, "1 2 3 4", "1 3");
    // 164
    check(
        &[
            "1 there unready zones=a",
            "2 there ready zones=b",
            "3 there ready zones=b",
        ],
        "2 3",
        "",
    );
    // 165
    check(
        &[
            "1 there ready zones=a",
            "2 there ready zones=b",
            "3 there unready",
        ],
        "1",
        "",
    );
    // 166
    check(
        &["1 there ready zones=a,b", "2 there ready zones=b"],
        "1",
        "",
    );
    check_in(
        Some("b"),
        &["1 there ready zones=a,b", "2 there ready zones=b"],
        "1 2",
        "",
    );
    // 173: the local endpoint is hinted for another zone only.
    check(&["1 here ready zones=b", "2 there ready zones=a"], "2", "1");
}

#[test]
fn nodes() {
    // 167: also a remote endpoint may be hinted for this node.
    check(
        &["1 here ready nodes=n1", "2 there ready nodes=n2"],
        "1",
        "1",
    );
    check(
        &["1 here ready nodes=n2", "2 there ready nodes=n1"],
        "2",
        "1",
    );
    // 168
    check(
        &[
            "1 there ready nodes=n2 zones=a",
            "2 there ready nodes=n3 zones=b",
        ],
        "1",
        "",
    );
    // 169
    check(
        &["1 here ready nodes=n1 zones=b", "2 there ready zones=a"],
        "2",
        "1",
    );
    // 170
    let mut list = [
        "1 here ready nodes=n1 zones=a",
        "2 there ready nodes=n2 zones=a",
        "3 there ready nodes=n3 zones=b",
    ];
    check(&list, "1", "1");
    list[0] = "1 here unready nodes=n1 zones=a";
    check(&list, "2", "");
    list[1] = "2 there unready nodes=n2 zones=a";
    check(&list, "3", "");
}

#[test]
fn flows_without_a_connection_go_on_to_whoever_serves() {
    let states = [
        "1 here ready zones=a",
        "2 there ready zones=b",
        "3 there leaving",
        "4 here gone",
        "5 here unready",
    ];
    for (protocol, expect) in [
        ("UDP", "10.0.1.1:8080 10.0.1.2:8080 10.0.1.3:8080"),
        ("SCTP", "10.0.1.1:8080 10.0.1.2:8080 10.0.1.3:8080"),
        ("TCP", ""),
    ] {
        let ports = json!([{"name": "http", "port": 80, "protocol": protocol}]);
        let service = service("web", "2024-01-01T00:00:00Z", "10.96.0.1", ports);
        let port = json!({"name": "http", "port": 8080, "protocol": protocol});
        let endpoints: Vec<Value> = states.iter().map(|text| endpoint(text)).collect();
        let compiled = compiled(&[service], &[slice("s", "web", port, json!(endpoints))]);
        let port = compiled.desired.v4.services.values().next().unwrap();
        let serving: Vec<String> = port.serving.iter().map(ToString::to_string).collect();
        assert_eq!(serving.join(" "), expect, "{protocol}");
    }
}
