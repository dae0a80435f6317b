//! What different clients meet at one address.

use super::*;

#[test]
fn policy_local_looks_at_this_node() {
    let endpoints = ["10.0.1.5 n1 ready", "10.0.2.6 n2 ready"];
    let internal = World::new().service("web", policy("internalTrafficPolicy"));
    internal.slice(&endpoints, nothing).check(
        "10.96.0.1:80",
        None,
        &[
            "internalTrafficPolicy: Local  (applies here)",
            "10.0.2.6:8080 on node n2, left out under policy Local: not on this node",
        ],
    );
    let external = World::new().service("web", policy("externalTrafficPolicy"));
    external.slice(&endpoints, nothing).check(
        "172.30.0.11:30080",
        None,
        &[
            "externalTrafficPolicy: Local  (applies here)",
            "10.0.2.6:8080 on node n2, answers under policy Cluster, left out under policy Local",
            "a pod of this node: answered by 10.0.1.5:8080 or 10.0.2.6:8080\n",
            "this node itself: answered by 10.0.1.5:8080 or 10.0.2.6:8080, masqueraded",
            "a client from outside: answered by 10.0.1.5:8080\n",
        ],
    );
}

#[test]
fn clients_are_what_their_address_says() {
    let endpoints = ["10.9.1.5 n1 ready", "10.9.2.6 n2 ready"];
    let ranges = |object: &mut Value| {
        object["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    };
    let world = World::new()
        .service("web", ranges)
        .slice(&endpoints, nothing);
    for (from, client, masquerade) in [
        ("10.0.1.77", Client::PodHere, false),
        ("10.9.1.5", Client::PodHere, false),
        ("10.9.2.6", Client::OtherPod, true),
        ("10.0.2.77", Client::OtherPod, true),
        ("172.30.0.11", Client::Node, true),
        ("127.0.0.1", Client::Node, true),
        ("8.8.8.8", Client::Outside, true),
    ] {
        let found = world.explain("10.96.0.1:80", Some(from));
        let [judgement] = found.served.unwrap().clients.try_into().unwrap();
        assert_eq!(
            (judgement.client, judgement.masquerade),
            (client, masquerade),
            "{from}"
        );
        assert_eq!(judgement.outcome, Outcome::Answered, "{from}");
    }
    world.check(
        "192.0.2.9:80",
        Some("8.8.8.8"),
        &["dropped: not within spec.load"],
    );
    world.check(
        "192.0.2.9:80",
        Some("192.0.2.1"),
        &["answered by", "192.0.2.0/24"],
    );
    let empty = World::new().service("web", nothing);
    empty.check(
        "10.96.0.1:80",
        None,
        &["refused: no endpoint answers on any node"],
    );
}

/// Where nothing tells pods from others, none is spared policy Local.
#[test]
fn a_pod_that_cannot_be_told_is_a_client_from_outside() {
    let endpoints = ["10.0.1.5 n1 ready", "10.0.2.6 n2 ready"];
    let world = World::new().service("web", policy("externalTrafficPolicy"));
    let mut world = world.slice(&endpoints, nothing);
    let answering = |world: &World| {
        let found = world.explain("172.30.0.11:30080", Some("10.0.1.77"));
        let [judgement] = found.served.unwrap().clients.try_into().unwrap();
        assert_eq!(judgement.client, Client::PodHere);
        judgement.endpoints.len()
    };
    assert_eq!(answering(&world), 2);
    world.node.detect = Detect::Off;
    assert_eq!(answering(&world), 1);
    // By networks a pod is one wherever it runs, and nobody else is.
    for (network, count) in [("10.0.0.0/16", 2), ("10.7.0.0/16", 1)] {
        world.node.detect = Detect::Networks(vec![network.parse().unwrap()]);
        assert_eq!(answering(&world), count, "{network}");
    }
}
