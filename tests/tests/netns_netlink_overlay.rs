//! VXLAN devices, their forwarding entries, policy rules; the oracle is iproute2.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::os::fd::AsFd;

use seaway_netlink::{
    Family, FdbEntry, IfIndex, MacAddr, Neighbour, Netns as Ns, RouteProtocol, Rule, Socket,
    TableId, Vxlan, VxlanDevice,
};
use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

/// A namespace with an uplink that has an address of each family.
fn host() -> (Netns, Socket, IfIndex) {
    let host = Netns::new("host");
    host.ip("link add up0 type bridge");
    host.ip("addr add 172.30.0.11/24 dev up0");
    host.ip("addr add fd01::11/64 dev up0 nodad");
    host.ip("link set up0 up");
    let handle = Ns::open(host.path()).unwrap();
    let mut socket = Socket::open_in(handle.as_fd()).unwrap();
    let index = socket.link_by_name("up0").unwrap().index;
    (host, socket, index)
}

fn device(vxlan: Vxlan) -> VxlanDevice {
    VxlanDevice {
        name: "seaway.vx".into(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1450,
        vxlan,
    }
}

/// What `bridge -j fdb` shows of the device.
fn fdb(host: &Netns) -> Vec<Value> {
    let text = host.must_run(&["bridge", "-j", "fdb", "show", "dev", "seaway.vx"]);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_vxlan_device_is_what_was_asked_for_and_reads_back_so() {
    if !require_root() {
        return;
    }
    let (host, mut socket, up0) = host();
    for (local, shown, mtu) in [("172.30.0.11", "local", 1450), ("fd01::11", "local6", 1430)] {
        let mut wanted = device(Vxlan::unicast(83, 8472, local.parse().unwrap(), up0));
        wanted.mtu = mtu;
        socket.link_add_vxlan(&wanted).unwrap();
        let again = socket.link_add_vxlan(&wanted).unwrap_err();
        assert!(again.is_exists(), "{again:?}");
        assert_eq!(
            again.to_string(),
            "link add vxlan seaway.vx id 83 dstport 8472"
        );

        let link = &host.ip_json("-d link show seaway.vx")[0];
        assert_eq!(link["address"], "02:00:00:00:00:01");
        assert_eq!(link["mtu"], mtu);
        let info = &link["linkinfo"];
        assert_eq!(info["info_kind"], "vxlan");
        let data = &info["info_data"];
        assert_eq!((&data["id"], &data["link"]), (&83.into(), &"up0".into()));
        assert_eq!(data["port"], 8472);
        assert_eq!(data[shown], local);
        assert_eq!(data["learning"], false);
        assert_eq!(
            (&data["group"], &data["group6"]),
            (&Value::Null, &Value::Null)
        );
        // The address is "set": what renames and re-addresses links leaves it alone.
        let path = "/sys/class/net/seaway.vx/addr_assign_type";
        let kind = host.must_run(&["ip", "netns", "exec", host.name(), "cat", path]);
        assert_eq!(kind.trim(), "3");

        let (link, vxlan) = socket.vxlan_by_name("seaway.vx").unwrap();
        assert_eq!(vxlan, Some(wanted.vxlan));
        assert_eq!(
            (link.mac, link.mtu, link.up),
            (Some(wanted.mac), mtu, false)
        );
        socket.link_set_mtu(link.index, 1400).unwrap();
        assert_eq!(socket.link_by_index(link.index).unwrap().mtu, 1400);
        socket.link_delete(link.index).unwrap();
    }
    assert!(
        socket
            .vxlan_by_name("seaway.vx")
            .unwrap_err()
            .is_not_found()
    );
    let (_, vxlan) = socket.vxlan_by_name("up0").unwrap();
    assert_eq!(vxlan, None);
}

#[test]
fn forwarding_entries_are_replaced_in_place_and_never_flood() {
    if !require_root() {
        return;
    }
    for (local, first, second) in [
        ("172.30.0.11", "172.30.0.12", "172.30.0.22"),
        ("fd01::11", "fd01::12", "fd01::22"),
    ] {
        let (host, mut socket, up0) = host();
        let vxlan = Vxlan::unicast(83, 8472, local.parse().unwrap(), up0);
        socket.link_add_vxlan(&device(vxlan)).unwrap();
        let ifindex = socket.link_by_name("seaway.vx").unwrap().index;
        assert_eq!(socket.fdb(ifindex).unwrap(), []);
        assert_eq!(fdb(&host), Vec::<Value>::new());
        let entry = |mac: u8, remote: &str| FdbEntry {
            ifindex,
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
            remote: remote.parse().unwrap(),
            link: None,
        };
        socket.fdb_replace(&entry(2, first)).unwrap();
        socket.fdb_replace(&entry(2, first)).unwrap();
        socket.fdb_replace(&entry(3, first)).unwrap();
        socket.fdb_replace(&entry(2, second)).unwrap();
        let mut have = socket.fdb(ifindex).unwrap();
        have.sort();
        assert_eq!(have, [entry(2, second), entry(3, first)]);
        // By a link, whatever the routes say.
        let by_link = FdbEntry {
            link: Some(up0),
            ..entry(3, first)
        };
        socket.fdb_replace(&by_link).unwrap();
        let have = socket.fdb(ifindex).unwrap();
        assert!(have.contains(&by_link) && have.len() == 2, "{have:?}");
        let shown = host.must_run(&["bridge", "fdb", "show", "dev", "seaway.vx"]);
        assert!(shown.contains("via up0"), "{shown}");
        socket.fdb_replace(&entry(3, first)).unwrap();
        let mut shown = fdb(&host);
        shown.sort_by_key(|entry| entry["mac"].to_string());
        let line = |mac: &str, dst: &str| {
            json!({"mac": mac, "dst": dst, "flags": ["self"],
                   "state": "permanent"})
        };
        for entry in &mut shown {
            let names = ["mac", "dst", "flags", "state"];
            entry
                .as_object_mut()
                .unwrap()
                .retain(|key, _| names.contains(&key.as_str()));
        }
        let wanted = [
            line("02:00:00:00:00:02", second),
            line("02:00:00:00:00:03", first),
        ];
        assert_eq!(shown, wanted);
        assert!(socket.remove_fdb(&entry(2, second)).unwrap());
        assert!(!socket.remove_fdb(&entry(2, second)).unwrap());
        assert_eq!(socket.fdb(ifindex).unwrap(), [entry(3, first)]);
    }
}

#[test]
fn neighbours_of_both_families_come_and_go() {
    if !require_root() {
        return;
    }
    let (host, mut socket, up0) = host();
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    for (family, address) in [(Family::V4, "10.244.1.1"), (Family::V6, "fd00::1")] {
        let entry = Neighbour::permanent(up0, address.parse().unwrap(), mac);
        socket.neighbour_replace(&entry).unwrap();
        let shown = &host.ip_json(&format!("neigh show {address} dev up0"))[0];
        assert_eq!(shown["lladdr"], mac.to_string());
        assert_eq!(shown["state"], json!(["PERMANENT"]));
        let have = socket.neighbours(family, Some(up0)).unwrap();
        assert!(have.contains(&entry), "{have:?}");
        assert!(socket.remove_neighbour(&entry).unwrap());
        assert!(!socket.remove_neighbour(&entry).unwrap());
    }
}

#[test]
fn rules_are_ours_by_their_protocol() {
    if !require_root() {
        return;
    }
    let (host, mut socket, _) = host();
    for (family, flag) in [(Family::V4, "-4"), (Family::V6, "-6")] {
        host.ip(&format!(
            "{flag} rule add fwmark 0x53 lookup 83 priority 83"
        ));
        let before = host.ip_json(&format!("{flag} rule show"));
        let rule = Rule {
            family,
            priority: 83,
            mark: Some(0x53),
            table: TableId(83),
            protocol: RouteProtocol::SEAWAY,
        };
        let foreign = Rule {
            protocol: RouteProtocol(0),
            ..rule
        };
        let listed = socket.rules(family).unwrap();
        assert!(
            listed.contains(&foreign) && !listed.contains(&rule),
            "{listed:?}"
        );
        socket.rule_add(&rule).unwrap();
        assert!(socket.rule_add(&rule).unwrap_err().is_exists());
        let shown = host.ip_json(&format!("-d {flag} rule show"));
        let ours: Vec<_> = shown.as_array().unwrap().iter().collect();
        let ours: Vec<_> = ours.iter().filter(|r| r["protocol"] == "83").collect();
        assert_eq!(ours.len(), 1, "{shown}");
        assert_eq!(ours[0]["priority"], 83);
        assert_eq!(
            (&ours[0]["fwmark"], &ours[0]["table"]),
            (&"0x53".into(), &"83".into())
        );
        assert!(socket.rules(family).unwrap().contains(&rule));
        assert!(socket.remove_rule(&rule).unwrap());
        assert!(!socket.remove_rule(&rule).unwrap());
        assert_eq!(host.ip_json(&format!("{flag} rule show")), before);
    }
}
