//! What ADD leaves in the kernel against neighbours that mean harm.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt,
    socket, sockopt,
};
use seaway_testbed::{Netns, require_root, wait_until};
use serde_json::{Value, json};

use crate::node::{Node, addresses, assert_reaches, feed, pod_path, success};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];
const HOST_END: &str = "swec43057c07aa";

/// RFC 4861, section 4.2: "I am a router for half an hour, and this is the
/// network here."
fn advertise_router(pod: &Netns) {
    let index = pod.ip_json("link show eth0")[0]["ifindex"]
        .as_u64()
        .unwrap();
    let mut packet = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08];
    packet.extend([0; 8]);
    packet.extend([3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0]);
    packet.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let scope = u32::try_from(index).unwrap();
    pod.enter(|| {
        let raw = socket(
            AddressFamily::Inet6,
            SockType::Raw,
            SockFlag::empty(),
            SockProtocol::IcmpV6,
        )
        .unwrap();
        // Anything less has come through a router, and is ignored.
        setsockopt(&raw, sockopt::Ipv6Ttl, &255).unwrap();
        let gateway = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 0, 0, scope);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&raw);
        sendto(fd, &packet, &SockaddrIn6::from(gateway), MsgFlags::empty()).unwrap();
    });
}

/// CVE-2020-10749.
#[test]
fn case_25_a_pod_cannot_become_the_hosts_router() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let (pod, heard) = (Netns::new("pod"), Netns::new("heard"));
    node.add("c1", &pod);
    let result = node.add("c2", &heard);
    let listening = result["interfaces"][0]["name"].as_str().unwrap();
    let key = format!("ipv6/conf/{listening}/accept_ra");
    node.netns.sysctl(&key, "2");
    advertise_router(&pod);
    // The same from where somebody listens shows that it is one to be taken,
    // and when the first one has been dealt with.
    advertise_router(&heard);
    let routes = || node.netns.ip_json("-6 route show proto ra");
    wait_until(Duration::from_secs(5), "the advertisement", || {
        Ok(match routes().as_array().map(Vec::len) {
            Some(0) | None => Err("no route of a router".to_owned()),
            _ => Ok(()),
        })
    })
    .unwrap();
    for route in routes().as_array().unwrap() {
        assert_eq!(route["dev"], listening, "{route}");
    }
    let seen = node.netns.ip(&format!("-6 addr show {HOST_END}"));
    assert!(!seen.contains("2001:db8"), "{seen}");
}

/// Pods with `hostUsers: false`: the runtime makes the namespace inside theirs.
#[test]
fn case_26_a_namespace_that_belongs_to_another_user_namespace() {
    if !require_root() {
        return;
    }
    let node = Node::with_ranges(&BOTH);
    let mut owner = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c"])
        .arg("echo ready; exec sleep 60")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = std::io::BufReader::new(owner.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let path = format!("/proc/{}/ns/net", owner.id());
    let result = success(&node.call("ADD", "c1", &path));
    for address in addresses(&result) {
        assert_reaches(&node.netns, &address);
    }
    let read = |key: &str| {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net={path}"), "cat"]);
        let output = command
            .arg(format!("/proc/sys/net/{key}"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    for (key, value) in [
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("addr_gen_mode", "1"),
        ("keep_addr_on_down", "1"),
        ("disable_ipv6", "0"),
    ] {
        assert_eq!(read(&format!("ipv6/conf/eth0/{key}")), value, "{key}");
    }
    node.del("c1", &path);
    node.assert_empty();
    owner.kill().unwrap();
    owner.wait().unwrap();
}

/// systemd's `MACAddressPolicy=persistent` (systemd#21185) rewrites addresses
/// whose assign type says that the kernel has made them up.
#[test]
fn case_24_hardware_addresses_are_set_and_not_random() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let result = node.add("c1", &pod);
    // `NET_ADDR_SET`, include/uapi/linux/netdevice.h; sysfs shows the
    // namespace in which it was mounted, and `ip netns exec` mounts it.
    for (netns, name, place) in [(&node.netns, HOST_END, 0), (&pod, "eth0", 1)] {
        let file = format!("/sys/class/net/{name}/addr_assign_type");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", netns.name(), "cat", &file]);
        let output = command.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            "3",
            "{name}"
        );
        let link = &netns.ip_json(&format!("link show {name}"))[0];
        assert_eq!(link["address"], result["interfaces"][place]["mac"]);
    }
    node.del("c1", "");
}

/// One who does it all the same, as early as can be.
#[test]
fn case_24_a_process_that_races_for_the_mac_is_found_out() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let racer = "for _ in $(seq 2000); do \
        ip link set eth0 address 02:00:00:00:00:66 2>/dev/null && exit 0; done; exit 1";
    let mut racer = pod.spawn(&["sh", "-c", racer]);
    let added = node.call("ADD", "c1", pod_path(&pod));
    assert!(racer.wait().unwrap().success());
    if added.status.success() {
        node.conf["prevResult"] = success(&added);
        let error = node.fails("CHECK", "c1", pod_path(&pod));
        let message = error["msg"].as_str().unwrap();
        assert!(message.contains("has the MAC 02:00:00:00:00:66"), "{error}");
        node.conf["prevResult"] = Value::Null;
    }
    node.del("c1", "");
    node.assert_empty();
}

#[test]
fn case_12_arguments_of_the_runtime() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    for (given, works) in [
        ("K8S_POD_UID=x;IgnoreUnknown=1;FOO=bar", true),
        (
            "FOO=bar;IgnoreUnknown=1;K8S_POD_UID=x;IgnoreUnknown=1",
            true,
        ),
        ("FOO=bar;IgnoreUnknown=true", true),
        ("K8S_POD_UID=x;K8S_POD_INFRA_CONTAINER_ID=y", true),
        ("", true),
        ("K8S_POD_UID=x;FOO=bar", false),
        ("K8S_POD_UID=x;FOO=bar;IgnoreUnknown=0", false),
    ] {
        let pod = Netns::new("pod");
        let mut command = node.command("ADD", "c1", pod_path(&pod));
        command.env("CNI_ARGS", given);
        let output = feed(command, &node.conf);
        assert_eq!(output.status.success(), works, "{given}");
        if !works {
            let error = crate::node::failure(&output);
            assert_eq!(error["code"], 4, "an environment variable is wrong");
            let message = error["msg"].as_str().unwrap();
            assert!(
                message.contains("CNI_ARGS") && message.contains("FOO"),
                "{error}"
            );
            node.assert_empty();
        }
        // DEL takes them all.
        let mut command = node.command("DEL", "c1", pod_path(&pod));
        command.env("CNI_ARGS", given);
        assert!(feed(command, &node.conf).status.success(), "{given}");
    }
    node.assert_empty();
    assert_eq!(node.netns.ip_json("neigh"), json!([]));
}
