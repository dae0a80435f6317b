use super::*;

fn node(name: &str, ip: &str, cidr: &str) -> Node {
    let list = |s: &str| {
        s.split(' ')
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Node {
        name: name.to_owned(),
        internal_ips: list(ip),
        pod_cidrs: list(cidr),
    }
}

fn own() -> Node {
    node("a", "172.30.0.11", "10.244.0.0/24")
}

/// What node `a` wants, or what it waits for, as text.
#[track_caller]
fn check(nodes: impl IntoIterator<Item = Node>, expect: &str) {
    let nodes = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
    let got = match desired("a", &nodes, &["10.244.0.0/16".parse().unwrap()]) {
        Ok(desired) => desired.to_string(),
        Err(waiting) => format!("waiting {waiting}\n"),
    };
    let got = got
        .replace("pod-cidr 10.244.0.0/24\n", "")
        .replace("masquerade 10.244.0.0/24 except to 10.244.0.0/16\n", "");
    assert_eq!(got.trim_end(), expect.trim());
}

#[test]
fn peers_get_one_route_per_range() {
    check(
        [
            own(),
            node("c", "172.30.0.13", "10.244.2.0/24 10.245.2.0/24"),
            node("b", "172.30.0.12", "10.244.1.7/24"),
        ],
        "route 10.244.1.0/24 via 172.30.0.12\n\
         route 10.244.2.0/24 via 172.30.0.13\n\
         route 10.245.2.0/24 via 172.30.0.13",
    );
}

#[test]
fn own_node_alone_still_masquerades() {
    let nodes = BTreeMap::from([("a".to_owned(), own())]);
    let got = desired("a", &nodes, &["10.244.0.0/16".parse().unwrap()]).unwrap();
    assert_eq!(
        got.to_string(),
        "pod-cidr 10.244.0.0/24\nmasquerade 10.244.0.0/24 except to 10.244.0.0/16\n"
    );
    assert_eq!(got.node_ip, Some("172.30.0.11".parse().unwrap()));
}

#[test]
fn nothing_is_desired_before_the_own_range_is_known() {
    check(
        [node("b", "172.30.0.12", "10.244.1.0/24")],
        "waiting node a is not registered",
    );
    check(
        [node("a", "172.30.0.11", "")],
        "waiting node a has no IPv4 range in spec.podCIDRs",
    );
    check(
        [node("a", "172.30.0.11", "fd00::/64")],
        "waiting node a has no IPv4 range in spec.podCIDRs",
    );
    for bad in ["10.244.0.0/33", "10.244.0.0", "0.0.0.0/0", "cat"] {
        check(
            [node("a", "", bad)],
            &format!("waiting node a has {bad:?} in spec.podCIDRs, which is not a usable IP range"),
        );
    }
}

#[test]
fn dual_stack_peers_are_routed_by_their_ipv4_half() {
    check(
        [
            own(),
            node("b", "fd01::12 172.30.0.12", "fd00:1::/64 10.244.1.0/24"),
        ],
        "route 10.244.1.0/24 via 172.30.0.12",
    );
}

#[test]
fn a_bad_peer_is_skipped_and_hurts_nobody() {
    let good = || node("z", "172.30.0.99", "10.244.9.0/24");
    for (bad, reason) in [
        (node("b", "172.30.0.12", ""), "spec.podCIDRs: no IPv4 range"),
        (
            node("b", "", "10.244.1.0/24"),
            "status.addresses: no InternalIP of IPv4",
        ),
        (
            node("b", "172.30.0.300", "10.244.1.0/24"),
            "status.addresses: InternalIP \"172.30.0.300\" is not a unicast address",
        ),
        (
            node("b", "127.0.0.1", "10.244.1.0/24"),
            "status.addresses: InternalIP \"127.0.0.1\" is not a unicast address",
        ),
        (
            node("b", "172.30.0.11", "10.244.1.0/24"),
            "status.addresses: InternalIP 172.30.0.11 is this node's own",
        ),
        (
            node("b", "172.30.0.12", "10.244.1.0/99"),
            "spec.podCIDRs: \"10.244.1.0/99\" is not an IP range",
        ),
        (
            node("b", "172.30.0.12", "0.0.0.0/0"),
            "spec.podCIDRs: \"0.0.0.0/0\" is not an IP range",
        ),
        (
            node("b", "172.30.0.12", "172.30.0.96/29"),
            "spec.podCIDRs: 172.30.0.96/29 contains the node address 172.30.0.99",
        ),
        (
            node("b", "172.30.0.12", "10.244.0.128/25"),
            "spec.podCIDRs: 10.244.0.128/25 overlaps 10.244.0.0/24 of node a",
        ),
    ] {
        check(
            [own(), bad, good()],
            &format!("route 10.244.9.0/24 via 172.30.0.99\nskip node b: {reason}"),
        );
    }
}

#[test]
fn of_two_claimants_the_first_by_name_keeps_the_range() {
    let b = || node("b", "172.30.0.12", "10.244.1.0/24");
    let c = || node("c", "172.30.0.13", "10.244.0.0/23 10.244.2.0/24");
    let expect = "route 10.244.1.0/24 via 172.30.0.12\n\
         route 10.244.2.0/24 via 172.30.0.13\n\
         skip node c: spec.podCIDRs: 10.244.0.0/23 overlaps 10.244.0.0/24 of node a";
    check([own(), b(), c()], expect);
    check([c(), b(), own()], expect);
}
