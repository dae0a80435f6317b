//! Addresses from a DHCP server, by the reference plugin `dhcp` and its daemon.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use seaway_testbed::{Netns, require_root, wait_until};
use serde_json::json;

use crate::node::{Node, addresses, assert_reaches, feed, pod_path, success, text};

const HOST_END: &str = "swec43057c07aa";

/// Ends with the test, whichever way.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn daemon(node: &Node, program: &Path, socket: &Path) -> Running {
    let mut command = node.netns.command(program);
    command.args(["daemon", "-timeout", "2s", "-resendmax", "500ms"]);
    command.arg("-socketpath").arg(socket);
    let daemon = Running(command.spawn().unwrap());
    wait_until(Duration::from_secs(10), "the DHCP daemon", || {
        Ok(if socket.exists() {
            Ok(())
        } else {
            Err("no socket".to_owned())
        })
    })
    .unwrap();
    daemon
}

/// A server on the host's end, as soon as that is there.
fn server(node: &Node) -> Running {
    let conf = node.dir.path().join("udhcpd.conf");
    let leases = node.dir.path().join("leases");
    std::fs::write(&leases, "").unwrap();
    let text = format!(
        "interface {HOST_END}\nstart 10.7.0.9\nend 10.7.0.9\nlease_file {}\npidfile {}\n\
         option subnet 255.255.255.0\noption router 10.7.0.1\noption lease 600\n",
        leases.display(),
        node.dir.path().join("udhcpd.pid").display(),
    );
    std::fs::write(&conf, text).unwrap();
    let script = format!(
        "for _ in $(seq 200); do ip link show {HOST_END} up 2>/dev/null | grep -q UP && break; \
         sleep 0.05; done; ip addr add 10.7.0.1/32 dev {HOST_END}; \
         exec busybox udhcpd -f -S {}",
        conf.display()
    );
    let mut command: Command = node.netns.command("sh");
    Running(command.args(["-c", &script]).spawn().unwrap())
}

#[test]
fn case_56_an_address_from_a_dhcp_server() {
    if !require_root() {
        return;
    }
    let bin = seaway_testbed::cache_dir().join("bin");
    let dhcp = bin.join("dhcp");
    if !dhcp.is_file() || !Path::new("/usr/bin/busybox").is_file() {
        return seaway_testbed::skip("needs dhcp (cargo xtask setup) and busybox");
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let socket = node.dir.path().join("dhcp.sock");
    node.conf["dataDir"] = json!(node.dir.path().join("cni"));
    node.conf["ipam"] = json!({"type": "dhcp", "daemonSocketPath": socket});
    node.conf["runtimeConfig"] = json!({"bandwidth": {"ingressRate": 100_000_000}});
    let call = |node: &Node, verb: &str| {
        let mut command = node.command(verb, "c1", pod_path(&pod));
        command.env("CNI_PATH", &bin);
        feed(command, &node.conf)
    };
    // Nobody answers the plugin: nothing is left.
    let refused = call(&node, "ADD");
    let error = crate::node::failure(&refused);
    assert!(
        error["msg"].as_str().unwrap().contains("IPAM plugin dhcp"),
        "{error}"
    );
    node.assert_empty();
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);

    let _daemon = daemon(&node, &dhcp, &socket);
    let _server = server(&node);
    let result = success(&call(&node, "ADD"));
    assert_eq!(addresses(&result), ["10.7.0.9"]);
    assert_eq!(result["ips"][0]["gateway"], "169.254.1.1");
    assert_reaches(&node.netns, "10.7.0.9");
    assert_reaches(&pod, "172.30.0.11");
    let qdisc = &node.netns.ip_json(&format!("link show {HOST_END}"))[0]["qdisc"];
    assert_eq!(qdisc, "tbf");
    node.conf["prevResult"] = result;
    let checked = call(&node, "CHECK");
    assert!(checked.status.success(), "{}", text(&checked));
    for _ in 0..2 {
        let deleted = call(&node, "DEL");
        assert!(deleted.status.success(), "{}", text(&deleted));
    }
    node.assert_empty();
}
