//! Acceptance cases that are about one sentence each.

use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use crate::node::{Node, assert_reaches, failure, feed, pod_path, success, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];
const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

#[test]
fn case_9_10_every_result_is_taken_back_by_later_versions() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    for (n, version) in VERSIONS.iter().enumerate() {
        let pod = Netns::new("pod");
        node.conf["cniVersion"] = json!(version);
        let result = node.add("c1", &pod);
        assert_eq!(result["cniVersion"], *version);
        if n < 2 {
            assert_eq!(result["ip4"]["gateway"], "169.254.1.1");
            assert_eq!(result["ip6"]["routes"][0]["dst"], "::/0");
            assert!(result.get("interfaces").is_none());
        } else {
            assert_eq!(result["ips"].as_array().unwrap().len(), 2);
        }
        node.conf["prevResult"] = result;
        for later in &VERSIONS[n..] {
            node.conf["cniVersion"] = json!(later);
            let checked = node.call("CHECK", "c1", pod_path(&pod));
            // CHECK came with 0.4.0.
            assert_eq!(
                checked.status.success(),
                *later >= "0.4.0",
                "{}",
                text(&checked)
            );
        }
        node.del("c1", "");
        for later in &VERSIONS[n..] {
            node.conf["cniVersion"] = json!(later);
            node.del("c1", "");
        }
        node.conf["prevResult"] = Value::Null;
    }
    node.assert_empty();
}

/// What the runtime has kept of a pod may be older than the conf that it is removed with.
#[test]
fn case_10_del_of_a_living_pod_takes_every_versions_result() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    for (n, version) in VERSIONS.iter().enumerate().skip(3) {
        for later in &VERSIONS[n..] {
            node.conf["cniVersion"] = json!(version);
            node.conf["prevResult"] = Value::Null;
            let result = node.add("c1", &pod);
            assert_eq!(result["cniVersion"], *version);
            node.conf["prevResult"] = result;
            node.conf["cniVersion"] = json!(later);
            node.del("c1", pod_path(&pod));
            node.assert_empty();
            let links = pod.ip_json("link");
            assert_eq!(links.as_array().unwrap().len(), 1, "{version} {later}");
        }
    }
}

#[test]
fn case_14_the_guard_of_the_plugins_own_namespace_can_be_lifted() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let error = node.fails("ADD", "c1", "/proc/self/ns/net");
    assert_eq!(error["code"], 8);
    node.assert_empty();
    let mut command = node.command("ADD", "c1", "/proc/self/ns/net");
    command.env("CNI_NETNS_OVERRIDE", "TRUE");
    success(&feed(command, &node.conf));
    let links = node.netns.ip_json("link");
    assert_eq!(links.as_array().unwrap().len(), 3);
    node.del("c1", "");
    node.assert_empty();
}

/// What the uplink and an overlay leave is the daemon's to say; the plugin
/// gives both ends what the conf says.
#[test]
fn case_23_both_ends_have_the_mtu_of_the_conf() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    node.conf["cniVersion"] = json!("1.1.0");
    for mtu in [9000, 8950, 8940, 1280] {
        let pod = Netns::new("pod");
        node.conf["mtu"] = json!(mtu);
        let result = node.add("c1", &pod);
        for (netns, name, place) in [(&node.netns, "swec43057c07aa", 0), (&pod, "eth0", 1)] {
            assert_eq!(netns.ip_json(&format!("link show {name}"))[0]["mtu"], mtu);
            assert_eq!(result["interfaces"][place]["mtu"], mtu);
        }
        node.del("c1", "");
    }
}

#[test]
fn case_24_44_a_mac_counts_as_the_chain_reports_it() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let result = node.add("c1", &pod);
    node.conf["prevResult"] = result;
    assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
    pod.ip("link set eth0 address 02:00:00:00:00:99");
    pod.ip("link set eth0 mtu 1400");
    // The kernel forgets all neighbours of an interface whose MAC changes.
    let mac = node.netns.ip_json("link show swec43057c07aa")[0]["address"].clone();
    for gateway in ["169.254.1.1", "fe80::1"] {
        let mac = mac.as_str().unwrap();
        pod.ip(&format!(
            "neigh replace {gateway} lladdr {mac} dev eth0 nud permanent"
        ));
    }
    let error = node.fails("CHECK", "c1", pod_path(&pod));
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("has the MAC 02:00:00:00:00:99"),
        "{error}"
    );
    // As the tuning plugin reports it, and with what a later plugin has added.
    node.conf["prevResult"]["interfaces"][1]["mac"] = json!("02:00:00:00:00:99");
    let ips = node.conf["prevResult"]["ips"].as_array_mut().unwrap();
    ips.push(json!({"address": "192.0.2.7/24", "interface": 1}));
    let checked = node.call("CHECK", "c1", pod_path(&pod));
    assert!(checked.status.success(), "{}", text(&checked));
}

#[test]
fn case_33_a_folder_that_cannot_be_written() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    std::fs::create_dir(node.dir.path().join("cni")).unwrap();
    for options in ["ro", "nr_inodes=4", "nr_inodes=5", "nr_inodes=6"] {
        let plain = node.command("ADD", "c1", pod_path(&pod));
        let mut command = node.netns.command("unshare");
        command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let script = format!(
            "mount -t tmpfs -o {options} none {} && exec \"$0\"",
            node.dir.path().join("cni").display()
        );
        command
            .args(["--mount", "sh", "-c", &script])
            .arg(&node.program)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let error = failure(&feed(command, &node.conf));
        assert_eq!(error["code"], 5, "{options}: {error}");
        assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
        node.assert_empty();
    }
    node.add("c1", &pod);
    assert_reaches(&node.netns, "10.244.1.2");
}

#[test]
fn case_66_a_reused_address_works_at_once() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&BOTH);
    let client = Netns::new("client");
    seaway_testbed::connect(
        &node.netns,
        "up0",
        "192.0.2.1/24",
        &client,
        "eth0",
        "192.0.2.2/24",
    );
    client.ip("route add 10.0.0.0/8 via 192.0.2.1");
    node.conf["runtimeConfig"] = json!({"ips": ["10.244.1.50"]});
    for n in 0..5 {
        let (id, pod) = (format!("c{n}"), Netns::new("pod"));
        node.add(&id, &pod);
        // The pod itself says that nobody listens there, at the first packet.
        let before = client.repeated_syns();
        let refused = client.ask_tcp("10.244.1.50:9").unwrap_err().kind();
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused);
        assert_eq!(client.repeated_syns(), before);
        node.del(&id, pod_path(&pod));
    }
}

/// As Docker leaves it.
#[test]
fn case_63_a_forward_policy_of_drop_lets_pods_through() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    for iptables in ["iptables-nft", "ip6tables-nft"] {
        node.netns.must_run(&[iptables, "-P", "FORWARD", "DROP"]);
        node.netns
            .must_run(&[iptables, "-A", "FORWARD", "-i", "docker0", "-j", "ACCEPT"]);
    }
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.add("a", &a);
    node.add("b", &b);
    assert_reaches(&a, "10.244.1.3");
    assert_reaches(&b, "fd00:1:2::2");
    let listed = node.netns.must_run(&["iptables-nft", "-S", "FORWARD"]);
    let ours: Vec<_> = listed.lines().filter(|l| l.contains("seaway")).collect();
    let want = [
        "-A FORWARD -i sw+ -m comment --comment \"seaway: from pods\" -j ACCEPT",
        "-A FORWARD -o sw+ -m comment --comment \"seaway: to pods\" -j ACCEPT",
    ];
    assert_eq!(ours, want, "{listed}");
}
