use std::fs;

use super::*;

const POD: &str = "sw0123456789ab";

/// A folder like /proc/sys/net, with these files.
fn net(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (key, value) in files {
        let path = dir.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{value}\n")).unwrap();
    }
    dir
}

fn value(net: &tempfile::TempDir, key: &str) -> String {
    let text = fs::read_to_string(net.path().join(key)).unwrap();
    text.trim().to_owned()
}

fn conf_v6(name: &str) -> String {
    format!("ipv6/conf/{name}/accept_ra")
}

#[test]
fn forwarding_leaves_interfaces_listening_but_no_pods_end() {
    let listening = ["all", "default", "eth0", "swp1", POD].map(conf_v6);
    let mut files: Vec<(&str, &str)> = listening.iter().map(|key| (key.as_str(), "1")).collect();
    files.extend([
        ("ipv6/conf/all/forwarding", "0"),
        ("ipv6/conf/deaf/accept_ra", "0"),
        // One that has no such setting any more.
        ("ipv6/conf/going/mtu", "1500"),
    ]);
    let net = net(&files);
    forward_v6(net.path()).unwrap();
    let now = ["all", "default", "eth0", "swp1", POD, "deaf"].map(|name| {
        let now = value(&net, &conf_v6(name));
        (name, now)
    });
    let expect = [
        ("all", "1"),
        ("default", "1"),
        ("eth0", "2"),
        ("swp1", "2"),
        // As its own ADD finds it, however late that comes.
        (POD, "1"),
        ("deaf", "0"),
    ];
    assert_eq!(now, expect.map(|(name, now)| (name, now.to_owned())));
    assert_eq!(value(&net, "ipv6/conf/all/forwarding"), "1");
    assert!(!net.path().join("ipv6/conf/going/accept_ra").exists());
}

#[test]
fn where_forwarding_is_on_nothing_is_told_to_listen() {
    let net = net(&[
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/eth0/accept_ra", "1"),
    ]);
    forward_v6(net.path()).unwrap();
    assert_eq!(value(&net, "ipv6/conf/eth0/accept_ra"), "1");
}

/// The settings of a pod's end as ADD leaves them, where the machine checks no sources.
fn right() -> tempfile::TempDir {
    let of_pod = |key: &str| key.replace("POD", POD);
    let files = [
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/POD/rp_filter", "0"),
        ("ipv4/conf/POD/forwarding", "1"),
        ("ipv4/conf/POD/send_redirects", "0"),
        ("ipv4/conf/POD/route_localnet", "1"),
        ("ipv6/conf/POD/accept_ra", "0"),
        ("ipv6/conf/POD/disable_ipv6", "0"),
    ]
    .map(|(key, value)| (of_pod(key), value));
    let files: Vec<(&str, &str)> = files.iter().map(|(key, v)| (key.as_str(), *v)).collect();
    net(&files)
}

fn wrong(net: &tempfile::TempDir, v6: bool, from_loopback: bool) -> Vec<Setting> {
    let ends = HostEnds::below(net.path()).unwrap();
    ends.wrong(POD, v6, from_loopback).unwrap()
}

#[test]
fn each_setting_of_a_pods_end_is_missed_and_written_where_the_pod_needs_it() {
    for (key, bad, good, (v6, from_loopback)) in [
        ("ipv4/conf/POD/forwarding", "0", "1", (false, false)),
        ("ipv4/conf/POD/send_redirects", "1", "0", (false, false)),
        ("ipv4/conf/POD/route_localnet", "0", "1", (false, true)),
        ("ipv4/conf/POD/rp_filter", "1", "2", (false, false)),
        ("ipv6/conf/POD/accept_ra", "2", "0", (false, false)),
        ("ipv6/conf/POD/disable_ipv6", "1", "0", (true, false)),
    ] {
        let (net, key) = (right(), key.replace("POD", POD));
        assert_eq!(wrong(&net, true, true), []);
        fs::write(net.path().join(&key), bad).unwrap();
        if v6 || from_loopback {
            assert_eq!(wrong(&net, !v6, !from_loopback), [], "{key}");
        }
        let found = wrong(&net, v6, from_loopback);
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        found[0].set().unwrap();
        assert_eq!(value(&net, &key), good, "{key}");
        assert_eq!(wrong(&net, true, true), [], "{key}");
    }
}

#[test]
fn the_check_of_sources_is_the_stricter_one_of_all_and_the_interface() {
    for (all, own, is_wrong) in [
        ("1", "0", true),
        ("1", "1", true),
        ("0", "1", true),
        ("1", "2", false),
        ("2", "1", false),
        ("2", "0", false),
        ("0", "0", false),
    ] {
        let net = right();
        fs::write(net.path().join("ipv4/conf/all/rp_filter"), all).unwrap();
        let path = net.path().join(format!("ipv4/conf/{POD}/rp_filter"));
        fs::write(path, own).unwrap();
        let found = wrong(&net, true, true);
        assert_eq!(!found.is_empty(), is_wrong, "{all} {own}: {found:?}");
    }
}

#[test]
fn an_interface_that_has_gone_lacks_nothing() {
    let net = right();
    fs::write(net.path().join(conf_v6(POD)), "1").unwrap();
    let found = wrong(&net, true, true);
    for family in ["ipv4", "ipv6"] {
        fs::remove_dir_all(net.path().join(family).join("conf").join(POD)).unwrap();
    }
    assert_eq!(wrong(&net, true, true), []);
    // Nor does one that goes after the look.
    assert_eq!(found.len(), 1);
    found[0].set().unwrap();
}
