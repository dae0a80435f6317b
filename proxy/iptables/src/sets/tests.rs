use std::net::SocketAddr;

use seaway_proxy_core::desired::{Endpoint, Frontend, FrontendKind};

use super::*;

fn sets(list: &[(&str, u64)]) -> Sets {
    let owned = list
        .iter()
        .map(|(name, timeout)| ((*name).to_owned(), *timeout));
    owned.collect()
}

#[test]
fn only_ours_are_read() {
    let dump = "\
create SEAWAY-4-0123456789abcdef hash:ip family inet hashsize 64 maxelem 1048576 timeout 125 bucketsize 12 initval 0x1
create SEAWAY-6-0123456789abcdef hash:ip family inet6 hashsize 64 maxelem 1048576 timeout 10800
create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536
create SEAWAY-4-0 hash:ip family inet hashsize 64 maxelem 65536
create SEAWAY-CLIENTS-0 hash:ip,port family inet hashsize 64 maxelem 65536 timeout 30
create SEAWAYS hash:ip family inet hashsize 64 maxelem 65536
add SEAWAY-4-0123456789abcdef 10.0.0.2 timeout 17
";
    let v4 = sets(&[
        ("SEAWAY-4-0", 0),
        ("SEAWAY-4-0123456789abcdef", 125),
        // Another version's.
        ("SEAWAY-CLIENTS-0", 30),
    ]);
    assert_eq!(parse(dump, Family::V4), v4);
    let v6 = sets(&[("SEAWAY-6-0123456789abcdef", 10_800)]);
    assert_eq!(parse(dump, Family::V6), v6);
    assert_eq!(names(dump).len(), 6);
    let strangers: Vec<_> = v4
        .keys()
        .chain(v6.keys())
        .filter(|name| is_stranger(name))
        .collect();
    assert_eq!(strangers, ["SEAWAY-CLIENTS-0"]);
}

#[test]
fn what_is_missing_is_created() {
    let have = sets(&[("SEAWAY-6-a", 1), ("SEAWAY-6-b", 1)]);
    let want = sets(&[("SEAWAY-6-b", 1), ("SEAWAY-6-c", 125)]);
    assert_eq!(
        creation(&have, &want, Family::V6),
        "create SEAWAY-6-c hash:ip family inet6 hashsize 4096 maxelem 1048576 timeout 125\n"
    );
    assert_eq!(
        superfluous(&have, &want).collect::<Vec<_>>(),
        ["SEAWAY-6-a"]
    );
}

#[test]
fn what_somebody_has_altered_is_made_anew_beside_it() {
    let have = sets(&[("SEAWAY-4-a", 7), ("SEAWAY-4-b", 0), ("SEAWAY-4-c", 125)]);
    let want = sets(&[
        ("SEAWAY-4-a", 125),
        ("SEAWAY-4-b", 125),
        ("SEAWAY-4-c", 125),
        ("SEAWAY-4-d", 125),
    ]);
    let of = |name: &str, found| Replacement {
        name: format!("SEAWAY-4-{name}"),
        timeouts: [found, 125],
        spare: format!("SEAWAY-4-x{name}"),
        script: format!(
            "create SEAWAY-4-x{name} hash:ip family inet hashsize 4096 maxelem 1048576 timeout 125\n\
             swap SEAWAY-4-x{name} SEAWAY-4-{name}\n\
             destroy SEAWAY-4-x{name}\n"
        ),
    };
    assert_eq!(
        replacements(&have, &want, Family::V4),
        [of("a", 7), of("b", 0)],
        "each by itself"
    );
    assert!(creation(&have, &want, Family::V4).starts_with("create SEAWAY-4-d "));
    // What a crash has left of it is ours, and nobody wants it.
    let left = parse(&of("a", 7).script, Family::V4);
    let superfluous: Vec<_> = superfluous(&left, &want).collect();
    assert_eq!(superfluous, ["SEAWAY-4-xa"]);
    // The kernel's longest name of a set has 31 letters (`IPSET_MAXNAMELEN`, with the zero).
    let name = name(
        Family::V4,
        &ServicePortName {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            port: String::new(),
        },
        Protocol::Tcp,
        "10.0.0.1:80".parse().unwrap(),
        Duration::from_secs(125),
    );
    assert!(name.len() < 31, "{name}");
}

#[test]
fn many_sets_are_small_ones() {
    for (count, buckets) in [
        (500, "4096"),
        (501, "1024"),
        (4_001, "256"),
        (SETS_MAX, "256"),
    ] {
        let want: Sets = (0..count).map(|i| (format!("SEAWAY-4-{i}"), 1)).collect();
        let script = creation(&Sets::new(), &want, Family::V4);
        assert!(script.contains(&format!(" hashsize {buckets} ")), "{count}");
    }
}

#[test]
fn what_does_not_fit_leaves_the_room_to_others() {
    let sticky = |endpoints: u32| {
        let addr = |i: u32| SocketAddr::from(((0x0a00_0000 + i).to_be_bytes(), 80));
        let endpoints = (0..endpoints).map(|i| Endpoint {
            addr: addr(i),
            local: false,
        });
        ServicePort {
            frontends: vec![Frontend {
                addr: [10, 96, 0, 1].into(),
                port: 80,
                protocol: Protocol::Tcp,
                kind: FrontendKind::ClusterIp,
            }],
            cluster: endpoints.collect(),
            affinity: Some(Duration::from_secs(7)),
            ..ServicePort::default()
        }
    };
    let mut room = Room::new(true);
    assert_eq!(room.take(&sticky(20_000)), Some(Duration::from_secs(7)));
    assert_eq!(room.take(&sticky(20_000)), None);
    assert_eq!(room.take(&sticky(10_000)), Some(Duration::from_secs(7)));
    assert_eq!(room.take(&sticky(1)), None);
    assert_eq!(Room::new(false).take(&sticky(1)), None);
    assert_eq!(Room::new(true).take(&ServicePort::default()), None);
}
