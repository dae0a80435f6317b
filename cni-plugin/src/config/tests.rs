use serde_json::json;

use super::*;

/// What seaway-proxy writes, as a runtime hands it to the plugin.
fn conf() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "seaway",
        "type": "seaway-cni",
        "mtu": 1450,
        "podNetworkState": "/run/seaway/pod-network.json",
        "ipam": {
            "type": "seaway",
            "ranges": [{"subnet": "10.244.1.0/24"}],
            "dataDir": "/run/seaway/cni",
        },
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut conf = conf();
    *conf.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
    conf
}

fn extra(parent: &str, key: &str, value: Value) -> Value {
    let mut conf = conf();
    conf.pointer_mut(parent).unwrap()[key] = value;
    conf
}

fn parse_value(conf: &Value) -> Result<Config, Error> {
    Config::parse(conf.to_string().as_bytes())
}

#[track_caller]
fn refused(conf: &Value, code: u32, text: &str) {
    let error = parse_value(conf).unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn the_conf_that_the_daemon_writes() {
    let config = parse_value(&conf()).unwrap();
    assert_eq!(config.mtu, 1450);
    assert_eq!(config.network.name, "seaway");
    assert_eq!(
        config.pod_network_state,
        Some("/run/seaway/pod-network.json".into())
    );
    assert_eq!(config.network.version, Version::V1_0_0);
    assert_eq!(config.pools.iter().next().unwrap().size(), 253);
}

#[test]
fn subnets_with_a_meaning_of_their_own_are_no_pools() {
    for subnet in [
        "127.0.0.0/16",
        "169.254.0.0/24",
        "224.0.0.0/8",
        "0.0.0.0/8",
        "0.0.0.0/0",
        "255.0.0.0/8",
        "::ffff:10.0.0.0/112",
        "fe80::/64",
        "ff05::/64",
        "::/64",
    ] {
        let conf = with("/ipam/ranges/0/subnet", json!(subnet));
        refused(&conf, 7, "ipam.ranges[0].subnet");
        let ranges = json!({"ipRanges": [[{"subnet": subnet}]]});
        let conf = extra("", "runtimeConfig", ranges);
        refused(&conf, 7, "runtimeConfig.ipRanges");
    }
}

/// As the pod network takes it: the kernel routes it, and some clouds give it to pods.
#[test]
fn what_is_only_reserved_is_a_pool() {
    let conf = with("/ipam/ranges/0/subnet", json!("240.1.2.0/24"));
    assert!(parse_value(&conf).is_ok());
}

/// What is misspelt is refused, see docs/decisions.md.
#[test]
fn case_11_unknown_keys_are_named_with_their_place() {
    refused(&extra("", "mtuu", json!(1)), 7, ": mtuu: unknown key");
    refused(
        &extra("/ipam", "gateway", json!("x")),
        7,
        ": ipam.gateway: unknown key",
    );
    refused(
        &extra("/ipam/ranges/0", "start", json!("x")),
        7,
        ": ipam.ranges[0].start: unknown key",
    );
    refused(
        &extra("", "dns", json!({"servers": []})),
        7,
        ": dns.servers: unknown key",
    );
}

#[test]
fn case_11_what_runtimes_and_people_add_is_accepted() {
    for parent in ["", "/ipam", "/ipam/ranges/0"] {
        for key in ["cni.dev/x", "io.kubernetes.x", "_comment"] {
            let conf = extra(parent, key, json!({"any": ["thing"]}));
            assert!(parse_value(&conf).is_ok(), "{parent} {key}");
        }
    }
    for (key, value) in [
        ("cniVersions", json!(["1.0.0", "1.1.0"])),
        ("disableCheck", json!("true")),
        ("disableGC", json!(false)),
        ("loadOnlyInlinedPlugins", json!(true)),
        ("args", json!({"anything": {"at": "all"}})),
        (
            "runtimeConfig",
            json!({"io.kubernetes.cri.pod-annotations": {"a": "b"}}),
        ),
        (
            "runtimeConfig",
            json!({"aliases": ["db"], "cgroupPath": "/x", "dns": {"Servers": []}}),
        ),
        ("capabilities", json!({"portMappings": true})),
        ("runtimeConfig", json!({"portMappings": [], "dns": {}})),
        ("args", json!({"cni": {"labels": []}})),
        ("prevResult", Value::Null),
        ("cni.dev/valid-attachments", json!([])),
        ("ipMasq", json!(false)),
        ("dns", json!({"nameservers": ["10.96.0.10"]})),
    ] {
        assert!(parse_value(&extra("", key, value)).is_ok(), "{key}");
    }
}

#[test]
fn case_6_wrong_values_are_named() {
    refused(&with("/mtu", json!("big")), 7, ": mtu: ");
    refused(&with("/mtu", json!(67)), 7, ": mtu: 67");
    refused(&with("/mtu", json!(65536)), 7, ": mtu: 65536");
    refused(&with("/ipam", Value::Null), 7, ": ipam: is required");
    refused(&with("/ipam/ranges", json!([])), 7, ": ipam.ranges: ");
    refused(
        &with("/ipam/ranges/0", json!({})),
        7,
        ": ipam.ranges[0].subnet: is required",
    );
    refused(
        &with("/ipam/ranges/0/subnet", json!("10.0.0/24")),
        7,
        ": ipam.ranges[0].subnet: ",
    );
    refused(
        &with("/ipam/ranges/0/subnet", json!("10.0.0.0/31")),
        7,
        "10.0.0.0/31",
    );
    refused(
        &with("/ipam/dataDir", json!("relative")),
        7,
        ": ipam.dataDir: relative",
    );
    for (value, why) in [
        (json!("run/x"), "run/x is not an absolute path"),
        (json!(1), "got 1"),
    ] {
        let conf = extra("", "podNetworkState", value);
        refused(&conf, 7, ": podNetworkState: ");
        refused(&conf, 7, why);
    }
    refused(&with("/name", json!("a/b")), 7, ": name: ");
    refused(&with("/name", Value::Null), 7, ": name: is required");
    refused(&json!([]), 7, "not an object");
    assert_eq!(Config::parse(b"{").unwrap_err().code(), 6);
}

#[test]
fn what_we_do_not_do_is_refused_and_not_ignored() {
    refused(&extra("", "ipMasq", json!(true)), 2, "ipMasq=true");
    let device = json!({"deviceID": "0000:01:00.0"});
    refused(
        &extra("", "runtimeConfig", device),
        2,
        "runtimeConfig.deviceID",
    );
}

#[test]
fn case_7_versions() {
    for version in Version::SUPPORTED {
        let config = parse_value(&with("/cniVersion", json!(version.as_str()))).unwrap();
        assert_eq!(config.network.version, version);
    }
    for unknown in [json!("2.0.0"), json!("0.5.0"), json!("")] {
        refused(
            &with("/cniVersion", unknown),
            1,
            "is not supported, only 0.1.0, ",
        );
    }
}

#[test]
fn case_7_a_conf_without_a_version_is_one_of_0_1_0() {
    let config = parse_value(&with("/cniVersion", Value::Null)).unwrap();
    assert_eq!(config.network.version, Version::V0_1_0);
}

#[test]
fn ranges_of_both_families() {
    let mut conf = with("/ipam/ranges/0/subnet", json!("fd00::/64"));
    assert!(parse_value(&conf).unwrap().pools.has_v6());
    conf["ipam"]["ranges"] = json!([
        {"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.9"},
        {"subnet": "fd00::/64"},
        {"subnet": "10.244.9.0/24"},
    ]);
    let pools = parse_value(&conf).unwrap().pools;
    let sizes: Vec<u128> = pools.iter().map(crate::ipam::Pool::size).collect();
    assert_eq!(sizes, [246 + 253, (1 << 64) - 2]);
    conf["mtu"] = json!(1279);
    refused(&conf, 7, ": mtu: 1279 is too small for IPv6");
}

#[test]
fn del_reads_confs_that_add_would_refuse() {
    let mut conf = extra("", "strange", json!(1));
    conf["ipam"] = json!({"type": "host-local", "dataDir": "/x", "more": 1});
    let network = Network::lenient(conf.to_string().as_bytes()).unwrap();
    assert_eq!(network.data_dir, PathBuf::from(DEFAULT_DATA_DIR));
    conf["dataDir"] = json!("/x");
    let network = Network::lenient(conf.to_string().as_bytes()).unwrap();
    assert_eq!(network.data_dir, PathBuf::from("/x"));
    conf["dataDir"] = Value::Null;
    conf["ipam"] = json!("nonsense");
    let network = Network::lenient(conf.to_string().as_bytes()).unwrap();
    assert_eq!(network.data_dir, PathBuf::from(DEFAULT_DATA_DIR));
}

#[test]
fn addresses_can_be_another_plugins_business() {
    let mut conf = with(
        "/ipam",
        json!({"type": "host-local", "dataDir": "/theirs", "ranges": [[{"subnet": "10.0.0.0/24"}]]}),
    );
    let config = parse_value(&conf).unwrap();
    assert_eq!(config.network.delegate.as_deref(), Some("host-local"));
    assert_eq!(config.network.data_dir, PathBuf::from(DEFAULT_DATA_DIR));
    conf["dataDir"] = json!("/ours");
    for network in [
        parse_value(&conf).unwrap().network,
        Network::lenient(conf.to_string().as_bytes()).unwrap(),
    ] {
        assert_eq!(network.data_dir, PathBuf::from("/ours"));
        assert_eq!(network.delegate.as_deref(), Some("host-local"));
    }
    for kind in ["", "..", "../x", "a/b"] {
        refused(&with("/ipam/type", json!(kind)), 7, "ipam.type");
    }
}

#[test]
fn runtimes_ranges_take_the_place_of_the_networks() {
    let ranges = json!({"ipRanges": [[{"Subnet": "10.9.0.0/29", "RangeStart": "10.9.0.4"}],
                                     [{"subnet": "fd00::/64"}]]});
    let config = parse_value(&extra("", "runtimeConfig", ranges)).unwrap();
    let sizes: Vec<u128> = config.pools.iter().map(crate::ipam::Pool::size).collect();
    assert_eq!(sizes, [3, (1 << 64) - 2]);
    let broken = json!({"ipRanges": [[{"RangeStart": "10.9.0.4"}]]});
    refused(
        &extra("", "runtimeConfig", broken),
        7,
        "runtimeConfig.ipRanges",
    );
}

#[test]
fn sticky_addresses_are_an_option() {
    assert_eq!(parse_value(&conf()).unwrap().sticky, None);
    let config = parse_value(&extra("/ipam", "sticky", json!(true))).unwrap();
    assert_eq!(config.sticky, Some(PathBuf::from(DEFAULT_STICKY_DIR)));
    refused(&extra("/ipam", "sticky", json!("yes")), 7, "ipam.sticky");
}
