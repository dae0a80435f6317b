use super::*;

fn pools(ranges: &[&str]) -> Result<Pools, String> {
    let spec = |range: &&str| RangeSpec::whole(range.parse().unwrap());
    Pools::new(&ranges.iter().map(spec).collect::<Vec<_>>())
}

fn pool(ranges: &[&str]) -> Pool {
    let pools = pools(ranges).unwrap();
    let mut all = pools.iter();
    let pool = all.next().unwrap().clone();
    assert!(all.next().is_none());
    pool
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn network_node_and_broadcast_addresses_are_never_given() {
    let pool = pool(&["10.0.0.0/29", "10.9.0.8/30"]);
    let all: Vec<String> = pool.after(None).map(|ip| ip.to_string()).collect();
    let want = [
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
        "10.9.0.10",
    ];
    assert_eq!(all, want);
    assert_eq!(pool.size(), 6);
    assert_eq!(pool.last(), pool.after(None).last());
    assert!(pool.after(None).all(|ip| pool.contains(ip)));
    for no in [
        "10.0.0.0",
        "10.0.0.1",
        "10.0.0.7",
        "10.0.0.8",
        "10.9.0.9",
        "10.9.0.11",
    ] {
        assert!(!pool.contains(ip(no)), "{no}");
    }
}

#[test]
fn ipv6_has_no_broadcast_address() {
    let pool = pool(&["fd00::/126"]);
    let all: Vec<String> = pool.after(None).map(|ip| ip.to_string()).collect();
    assert_eq!(all, ["fd00::2", "fd00::3"]);
    assert_eq!(
        self::pool(&["fd00::/64"]).size(),
        (1 << 64) - 2,
        "a pool of the usual size is not walked through"
    );
    assert_eq!(self::pool(&["::/0"]).size(), u128::MAX - 1);
}

#[test]
fn families_are_apart() {
    let pools = pools(&["10.0.0.0/29", "fd00::/64", "10.9.0.0/29"]).unwrap();
    let texts: Vec<String> = pools.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.0/29, 10.9.0.0/29", "fd00::/64"]);
    let other = self::pools(&["fd01::/64"]).unwrap();
    let texts: Vec<String> = pools
        .overridden_by(other)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts, ["10.0.0.0/29, 10.9.0.0/29", "fd01::/64"]);
}

#[test]
fn a_part_of_a_subnet() {
    let spec = |start: &str, end: &str| RangeSpec {
        subnet: "10.0.0.0/24".parse().unwrap(),
        start: Some(ip(start)),
        end: Some(ip(end)),
    };
    let pools = Pools::new(&[
        spec("10.0.0.10", "10.0.0.11"),
        spec("10.0.0.20", "10.0.0.20"),
    ])
    .unwrap();
    let pool = pools.iter().next().unwrap();
    let all: Vec<String> = pool.after(None).map(|ip| ip.to_string()).collect();
    assert_eq!(all, ["10.0.0.10", "10.0.0.11", "10.0.0.20"]);
    for (start, end, text) in [
        ("10.0.0.1", "10.0.0.9", "rangeStart 10.0.0.1"),
        ("10.0.0.9", "10.0.0.255", "rangeEnd 10.0.0.255"),
        ("10.0.0.9", "10.0.0.8", "behind"),
        ("fd00::2", "10.0.0.8", "family"),
    ] {
        let error = Pools::new(&[spec(start, end)]).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn going_on_behind_an_address() {
    let pool = pool(&["10.0.0.0/29", "10.9.0.8/30"]);
    let next = |text: &str| pool.after(Some(ip(text))).next();
    assert_eq!(next("10.0.0.3"), Some(ip("10.0.0.4")));
    assert_eq!(next("10.0.0.6"), Some(ip("10.9.0.10")));
    assert_eq!(next("10.9.0.10"), None);
    assert_eq!(next("192.0.2.1"), Some(ip("10.0.0.2")));
}

#[test]
fn useless_ranges_are_refused() {
    for (ranges, text) in [
        (&[][..], "no range"),
        (&["10.0.0.0/31"], "10.0.0.0/31"),
        (&["10.0.0.1/32"], "10.0.0.1/32"),
        (&["fd00::/127"], "fd00::/127"),
        (&["fd00::/128"], "the smallest is a /126"),
        (
            &["10.0.0.0/8", "10.1.0.0/16"],
            "10.1.0.0/16 overlaps 10.0.0.0/8",
        ),
        (
            &["fd00::/48", "fd00:0:0:7::/64"],
            "fd00:0:0:7::/64 overlaps",
        ),
    ] {
        let error = pools(ranges).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(pool(&["10.0.0.77/24"]).to_string(), "10.0.0.0/24");
}
