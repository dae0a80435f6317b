use serde_json::json;

use super::*;

fn result() -> CniResult {
    let interface = |name: &str, mac: &str, sandbox: &str| Interface {
        name: name.into(),
        mac: mac.into(),
        mtu: Some(1450),
        sandbox: sandbox.into(),
        ..Interface::default()
    };
    let mut more = serde_json::Map::new();
    more.insert("mtu".into(), json!(1450));
    CniResult {
        interfaces: vec![
            interface("sw0123456789ab", "0a:00:00:00:00:01", ""),
            interface("eth0", "0a:00:00:00:00:02", "/run/netns/p1"),
        ],
        ips: vec![
            Ip {
                version: None,
                interface: Some(1),
                address: "10.1.2.3/32".parse().unwrap(),
                gateway: Some("169.254.1.1".parse().unwrap()),
            },
            Ip {
                version: None,
                interface: Some(0),
                address: "fd00::3/128".parse().unwrap(),
                gateway: None,
            },
        ],
        routes: vec![Route {
            dst: "0.0.0.0/0".parse().unwrap(),
            gw: Some("169.254.1.1".parse().unwrap()),
            more,
        }],
        dns: Dns::default(),
    }
}

#[test]
fn case_9_golden_1_1_0() {
    assert_eq!(
        result().render(Version::V1_1_0),
        r#"{"cniVersion":"1.1.0","interfaces":[{"name":"sw0123456789ab","mac":"0a:00:00:00:00:01","mtu":1450},{"name":"eth0","mac":"0a:00:00:00:00:02","mtu":1450,"sandbox":"/run/netns/p1"}],"ips":[{"interface":1,"address":"10.1.2.3/32","gateway":"169.254.1.1"},{"interface":0,"address":"fd00::3/128"}],"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1","mtu":1450}]}"#
    );
}

#[test]
fn case_9_golden_1_0_0() {
    assert_eq!(
        result().render(Version::V1_0_0),
        r#"{"cniVersion":"1.0.0","interfaces":[{"name":"sw0123456789ab","mac":"0a:00:00:00:00:01"},{"name":"eth0","mac":"0a:00:00:00:00:02","sandbox":"/run/netns/p1"}],"ips":[{"interface":1,"address":"10.1.2.3/32","gateway":"169.254.1.1"},{"interface":0,"address":"fd00::3/128"}],"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"}]}"#
    );
}

#[test]
fn case_9_golden_0_4_0_and_before() {
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
        let want = r#"{"cniVersion":"VERSION","interfaces":[{"name":"sw0123456789ab","mac":"0a:00:00:00:00:01"},{"name":"eth0","mac":"0a:00:00:00:00:02","sandbox":"/run/netns/p1"}],"ips":[{"version":"4","interface":1,"address":"10.1.2.3/32","gateway":"169.254.1.1"},{"version":"6","interface":0,"address":"fd00::3/128"}],"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"}]}"#;
        assert_eq!(
            result().render(version),
            want.replace("VERSION", version.as_str())
        );
    }
}

#[test]
fn case_9_golden_before_0_3_0() {
    for version in [Version::V0_1_0, Version::V0_2_0] {
        let want = r#"{"cniVersion":"VERSION","ip4":{"ip":"10.1.2.3/32","gateway":"169.254.1.1","routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"}]},"ip6":{"ip":"fd00::3/128"}}"#;
        assert_eq!(
            result().render(version),
            want.replace("VERSION", version.as_str())
        );
    }
}

#[test]
fn case_10_every_form_can_be_read_back_as_prev_result() {
    for version in Version::SUPPORTED {
        let text = result().render(version);
        let read = CniResult::parse(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read.render(version), text);
    }
}

#[test]
fn chained_results_keep_their_interface_numbers() {
    let mut first = result();
    first.append(result());
    let numbers: Vec<_> = first.ips.iter().map(|ip| ip.interface).collect();
    assert_eq!(numbers, [Some(1), Some(0), Some(3), Some(2)]);
}

#[test]
fn broken_prev_results_are_named() {
    for broken in [
        json!([]),
        json!({"ips": [{"address": "10.0.0.1"}, 7]}),
        json!({"interfaces": [], "ips": [{"address": "10.0.0.1/32", "interface": 0}]}),
    ] {
        let error = CniResult::parse(&broken).unwrap_err();
        assert_eq!(error.code(), 7);
        assert!(error.to_string().contains("prevResult"), "{error}");
    }
}
