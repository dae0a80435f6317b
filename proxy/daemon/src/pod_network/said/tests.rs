use nix::errno::Errno;
use seaway_netlink::NetlinkError;

use super::*;

/// As of routes, neighbours and entries that the kernel does not take.
fn refused(object: &str, errno: Errno) -> PodNetworkError {
    let source = NetlinkError::refused("route add", object, errno as i32);
    PodNetworkError::Routes { source }
}

#[test]
fn each_object_that_fails_is_told_once() {
    let [b, c, d] = ["10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"];
    let mut told = BTreeSet::new();
    for (now, expect) in [
        (&[(b, Errno::EINVAL), (c, Errno::EINVAL)][..], &[b, c][..]),
        // Whatever the cause is by now.
        (&[(c, Errno::EINVAL), (b, Errno::ENOMEM)], &[]),
        // One is well again, and another one is not.
        (&[(c, Errno::EINVAL), (d, Errno::EINVAL)], &[d]),
        (&[(b, Errno::EINVAL)], &[b]),
        (&[], &[]),
    ] {
        let failed = now.iter().map(|(object, errno)| refused(object, *errno));
        let failed: Vec<_> = failed.collect();
        let lines = failures(&mut told, &failed);
        assert_eq!(lines.len(), expect.len(), "{now:?}: {lines:?}");
        for (line, object) in lines.iter().zip(expect) {
            assert!(line.contains(object), "{line}");
        }
    }
}

fn cidrs(words: &[&str]) -> Vec<IpNetwork> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn a_pod_cidr_outside_of_the_cluster_is_seen() {
    let cluster = cidrs(&["10.244.0.0/16", "fd00:244::/48"]);
    for (own, expect) in [
        (
            ["10.244.3.0/24", "fd00:244:0:3::/64"].as_slice(),
            [].as_slice(),
        ),
        (&["10.245.3.0/24"], &["10.245.3.0/24"]),
        // Larger than all of the cluster's.
        (&["10.0.0.0/8"], &["10.0.0.0/8"]),
        (&["fd01::/64", "10.244.0.0/16"], &["fd01::/64"]),
    ] {
        assert_eq!(outside(&cidrs(own), &cluster), cidrs(expect), "{own:?}");
    }
}

#[test]
fn only_turns_are_told() {
    let of = |list: &[(&str, bool)]| -> BTreeMap<String, bool> {
        list.iter()
            .map(|(name, direct)| ((*name).to_owned(), *direct))
            .collect()
    };
    let before = of(&[
        ("a", true),
        ("b", true),
        ("c", false),
        ("d", false),
        ("e", true),
    ]);
    let now = of(&[
        ("a", true),
        ("b", false),
        ("c", true),
        ("d", false),
        ("new", false),
    ]);
    assert_eq!(turned(&before, &now), (vec!["c"], vec!["b"]));
    assert_eq!(turned(&now, &now), (vec![], vec![]));
}

#[test]
fn a_line_does_not_grow_with_the_cluster() {
    assert_eq!(names(&["a", "b"]), "a, b");
    let many: Vec<String> = (0..1000).map(|n| format!("node-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(
        names(&many),
        "node-0, node-1, node-2, node-3, node-4 and 995 more"
    );
}
