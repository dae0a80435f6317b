//! When all is in sync, and what a status says if not, in words and as JSON.

use seaway_proxy_core::explain::kernel::{Deviation, Difference};
use serde_json::{Value, json};

use super::*;

fn good() -> ProxyStatus {
    ProxyStatus {
        backend: "iptables".to_owned(),
        variant: Some("nft".to_owned()),
        received: true,
        last_sync: Some(Timestamp::UNIX_EPOCH),
        sync_age_seconds: Some(7),
        kernel: Look {
            agree: Some(true),
            ..Look::default()
        },
        services: 3,
        service_ports: 4,
        endpoints: 5,
        skipped: 1,
        ..ProxyStatus::default()
    }
}

fn altered() -> Look {
    Look {
        agree: Some(false),
        unknown: None,
        differing: 2,
        first: vec![Difference {
            deviation: Deviation::Missing,
            place: "IPv4".to_owned(),
            want: Some("set a timeout 7".to_owned()),
            have: None,
        }],
    }
}

fn of(proxy: ProxyStatus) -> Status {
    Status::of("a".to_owned(), Some(proxy), None)
}

fn as_json(status: &Status) -> Value {
    serde_json::to_value(status).unwrap()
}

#[track_caller]
fn check(status: &Status, parts: &[&str]) {
    let text = status.to_string();
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

type Spoil = fn(&mut ProxyStatus);

#[test]
fn all_is_in_sync_only_if_the_kernel_agrees_and_nothing_is_left_to_do() {
    assert!(of(good()).in_sync);
    let bad: [(Spoil, bool); 6] = [
        (|s| s.received = false, true),
        (|s| s.last_sync = None, true),
        (|s| s.failures = 1, true),
        (|s| s.pending_changes = 1, true),
        (|s| s.kernel = altered(), false),
        (|s| s.kernel = Look::unknown("read the rules"), false),
    ];
    for (spoil, unsettled) in bad {
        let mut proxy = good();
        spoil(&mut proxy);
        // Where it is, nobody has to look.
        assert_eq!(proxy.unsettled().is_some(), unsettled, "{proxy}");
        let status = of(proxy);
        assert!(!status.in_sync, "{status}");
        check(&status, &["node a: not in sync"]);
        assert_eq!(as_json(&status)["inSync"], false);
    }
}

#[test]
fn the_pod_network_counts_and_what_is_off_does_not() {
    let network = |in_sync, cni_conf| PodNetwork {
        in_sync,
        cni_conf,
        ..PodNetwork::default()
    };
    for (network, expected) in [
        (None, true),
        (Some(network(true, true)), true),
        (Some(network(false, true)), false),
        (Some(network(true, false)), false),
    ] {
        for proxy in [None, Some(good())] {
            let status = Status::of("a".to_owned(), proxy, network.clone());
            assert_eq!(status.in_sync, expected, "{status}");
        }
        let bad = Some(ProxyStatus::default());
        assert!(!Status::of("a".to_owned(), bad, network).in_sync);
    }
}

#[test]
fn a_status_tells_its_age_and_its_counts() {
    let status = of(ProxyStatus {
        drift_repaired: 2,
        drift_last: Some(Timestamp::UNIX_EPOCH),
        ..good()
    });
    check(
        &status,
        &[
            "node a: in sync\n",
            "service proxy: iptables (nft)\n",
            "  last sync: 7 s ago (1970-01-01T00:00:00Z)\n",
            "  pending changes: 0\n",
            "  kernel: as it should be\n",
            "  drift repaired: 2, last at 1970-01-01T00:00:00Z\n",
            "  services: 3, ports: 4, endpoints: 5, skipped: 1\n",
            "pod network: off\n",
        ],
    );
    let value = as_json(&status);
    assert_eq!(value["inSync"], true);
    assert_eq!(value["podNetwork"], Value::Null);
    let proxy = &value["serviceProxy"];
    assert_eq!(proxy["syncAgeSeconds"], 7);
    assert_eq!(proxy["lastSync"], "1970-01-01T00:00:00Z");
    assert_eq!(proxy["pendingChanges"], 0);
    assert_eq!(proxy["driftRepaired"], 2);
    let kernel = json!({ "agree": true, "differing": 0, "first": [] });
    assert_eq!(proxy["kernel"], kernel);
    // As the client reads it of the daemon.
    let read: Status = serde_json::from_value(value).unwrap();
    assert_eq!(read, status);
}

#[test]
fn a_status_says_what_is_wrong() {
    let status = Status::of(
        "a".to_owned(),
        Some(ProxyStatus {
            failures: 2,
            last_error: Some("write the nft rules".to_owned()),
            kernel: Look::unknown("the last round has failed"),
            ..good()
        }),
        Some(PodNetwork::default()),
    );
    check(
        &status,
        &[
            "node a: not in sync",
            "last sync: 7 s ago",
            "failed 2 times in a row: write the nft rules",
            "kernel: not known: the last round has failed",
            "pod network: not in sync, CNI conf not there",
        ],
    );
    assert_eq!(
        as_json(&status)["serviceProxy"]["kernel"],
        json!({
            "agree": null, "unknown": "the last round has failed", "differing": 0, "first": [],
        })
    );
    let status = of(ProxyStatus {
        kernel: altered(),
        ..good()
    });
    check(
        &status,
        &[
            "  kernel: not as it should be, being repaired\n",
            "    missing in IPv4: set a timeout 7\n",
            "    and 1 more\n",
        ],
    );
    let kernel = &as_json(&status)["serviceProxy"]["kernel"];
    assert_eq!(
        (&kernel["agree"], &kernel["differing"]),
        (&json!(false), &json!(2))
    );
    assert_eq!(kernel["first"][0]["want"], "set a timeout 7");
    let status = of(ProxyStatus::default());
    check(
        &status,
        &["last sync: none yet, the API server has not told"],
    );
    assert_eq!(
        as_json(&status)["serviceProxy"]["syncAgeSeconds"],
        Value::Null
    );
    assert_eq!(Status::default().to_string(), "the daemon does not run\n");
}
