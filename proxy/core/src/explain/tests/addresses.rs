//! Which address is meant, whose it is, and what else touches it.

use super::*;

#[test]
fn targets_are_read() {
    for (text, shown) in [
        ("10.96.0.1:80", "10.96.0.1:80/TCP"),
        ("10.96.0.1:53/udp", "10.96.0.1:53/UDP"),
        ("[fd00::1]:9/SCTP", "[fd00::1]:9/SCTP"),
    ] {
        assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
    }
    let bad = |text: &str| text.parse::<Target>().unwrap_err();
    assert_eq!(bad("10.96.0.1"), BadTarget::Address("10.96.0.1".to_owned()));
    assert_eq!(
        bad("fd00::1:80/TCP"),
        BadTarget::Address("fd00::1:80".to_owned())
    );
    assert_eq!(
        bad("10.96.0.1:80/ICMP"),
        BadTarget::Protocol("ICMP".to_owned())
    );
    assert_eq!(bad("10.96.0.1:0"), BadTarget::Port);
}

#[test]
fn each_address_says_its_kind() {
    let world = World::new()
        .service("web", nothing)
        .slice(&["10.0.1.5 n1 ready"], nothing);
    for (target, kind) in [
        ("10.96.0.1:80", "clusterIP"),
        ("192.0.2.9:80", "load balancer IP"),
        ("172.30.0.11:30080", "NodePort"),
        ("127.0.0.1:30080", "NodePort"),
    ] {
        let head = format!("{target}/TCP: {kind} of Service default/web, port http");
        world.check(
            target,
            None,
            &[&head, "10.0.1.5:8080 on node n1 (this one), answers"],
        );
    }
    let nobody = "no Service port is served here";
    world.check(
        "10.96.0.1:81",
        None,
        &[nobody, "note: 10.96.0.1:80/TCP is default/web:http's"],
    );
    world.check("10.96.0.1:80/UDP", None, &[nobody]);
    world.check(
        "172.30.0.99:30080",
        None,
        &[nobody, "no address of this node"],
    );
    world.check(
        "172.30.0.11:30080/UDP",
        None,
        &[nobody, "of another protocol"],
    );
    for elsewhere in ["10.96.0.99:80", "172.30.0.11:30099", "172.30.0.11:80"] {
        let notes = world.explain(elsewhere, None).notes;
        assert_eq!(notes, [""; 0], "{elsewhere}");
    }
}

#[test]
fn what_touches_the_address_is_told() {
    let young = |object: &mut Value| {
        object["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        object["spec"]["clusterIP"] = json!("10.96.0.2");
        object["spec"]["externalIPs"] = json!(["10.96.0.1", "127.0.0.9"]);
        object["spec"]["ports"][0]["nodePort"] = json!(30081);
    };
    let bad = |slice: &mut Value| {
        slice["ports"] = json!([{"name": "http", "port": 8080}, {"name": "x", "port": 0}]);
    };
    let world = World::new().service("web", nothing).service("thief", young);
    let world = world.slice(&["10.0.1.5 n1 ready"], bad);
    let skipped = |target: &str| {
        let found = world.explain(target, None).skipped;
        found
            .into_iter()
            .map(|s| format!("{} {}", s.object, s.field))
            .collect::<Vec<_>>()
    };
    let of_slice = "default/s10.0.1.5 n1 ready ports[1].port".to_owned();
    let contested = "default/thief spec.ports[0]".to_owned();
    assert_eq!(skipped("10.96.0.1:80"), [contested, of_slice]);
    assert_eq!(
        skipped("127.0.0.9:80"),
        ["default/thief spec.externalIPs[1]"]
    );
    assert_eq!(skipped("10.96.0.3:80"), [""; 0]);
    let head = |target: &str| world.explain(target, None).to_string();
    assert!(head("10.96.0.1:80").contains("not programmed\n"));
    assert!(!head("10.96.0.3:80").contains("not programmed"));

    // A NodePort that another Service has, which is another one in each family.
    let rival = |object: &mut Value| {
        object["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        object["spec"]["clusterIP"] = json!("10.96.0.2");
        object["status"] = json!({});
    };
    let mut world = World::new().service("web", nothing).service("rival", rival);
    let own = ["172.30.0.11", "fd00::11"].map(|addr| addr.parse().unwrap());
    world.surroundings.addresses = own.into();
    let skipped = |target: &str| world.explain(target, None).skipped.len();
    assert_eq!(skipped("172.30.0.11:30080"), 1);
    assert_eq!(skipped("[fd00::11]:30080"), 0);
    assert_eq!(skipped("172.30.0.11:30081"), 0);
    assert_eq!(skipped("172.30.0.11:30080/UDP"), 0);
    assert_eq!(skipped("172.30.0.12:30080"), 0);
}
