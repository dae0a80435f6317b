//! The real seaway-cni binary, called as a container runtime calls it; the
//! oracles are `ip -j` and packets.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, bin, require_root};
use serde_json::{Value, json};

/// A node without anything but the plugin; 172.30.0.11 is its own address.
struct Node {
    netns: Netns,
    dir: tempfile::TempDir,
    conf: Value,
    /// `seaway-cni`, or another name that it is called by.
    program: PathBuf,
}

impl Node {
    fn new(range: &str) -> Self {
        let netns = Netns::new("node");
        netns.ip("addr add 172.30.0.11/32 dev lo");
        let dir = tempfile::tempdir().unwrap();
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "seaway",
            "type": "seaway-cni",
            "mtu": 1450,
            "ipam": {
                "type": "seaway",
                "ranges": [{"subnet": range}],
                "dataDir": dir.path().join("cni"),
            },
        });
        Self {
            netns,
            dir,
            conf,
            program: bin("seaway-cni"),
        }
    }

    fn command(&self, verb: &str, id: &str, pod_path: &str) -> Command {
        let mut command = self.netns.command(&self.program);
        command.env_clear().envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", pod_path),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web",
            ),
        ]);
        command
    }

    fn call(&self, verb: &str, id: &str, pod_path: &str) -> Output {
        feed(self.command(verb, id, pod_path), &self.conf)
    }

    #[track_caller]
    fn add(&self, id: &str, pod: &Netns) -> Value {
        success(&self.call("ADD", id, pod_path(pod)))
    }

    #[track_caller]
    fn del(&self, id: &str, pod_path: &str) {
        let output = self.call("DEL", id, pod_path);
        assert!(output.status.success(), "{}", text(&output));
        assert!(output.stdout.is_empty(), "{}", text(&output));
    }

    #[track_caller]
    fn fails(&self, verb: &str, id: &str, pod_path: &str) -> Value {
        failure(&self.call(verb, id, pod_path))
    }

    /// Names of the records, without the hints.
    fn records(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut dirs = vec![self.dir.path().join("cni/seaway")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    names.push(entry.file_name().into_string().unwrap());
                }
            }
        }
        names.retain(|name| name.contains('='));
        names.sort();
        names
    }

    /// No pod's interface, route, neighbour entry or record.
    #[track_caller]
    fn assert_empty(&self) {
        let links = self.netns.ip_json("link");
        assert_eq!(links.as_array().unwrap().len(), 1, "{links}");
        assert_eq!(self.netns.ip_json("route show proto 83"), json!([]));
        assert_eq!(self.netns.ip_json("neigh"), json!([]));
        assert_eq!(self.records(), [""; 0]);
    }
}

/// A packet goes there and one comes back: nobody listens on the port, and the
/// other host says so. From loopback this is also an ICMP answer.
#[track_caller]
fn assert_reaches(from: &Netns, address: &str) {
    let error = from.ask_udp(&format!("{address}:9")).unwrap_err();
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::ConnectionRefused,
        "{address}"
    );
}

fn pod_path(pod: &Netns) -> &str {
    pod.path().to_str().unwrap()
}

fn feed(mut command: Command, conf: &Value) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A plugin that fails early does not read it.
    stdin.write_all(conf.to_string().as_bytes()).ok();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

#[track_caller]
fn success(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn failure(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(1), "{}", text(output));
    let error: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)));
    assert!(
        error["code"].is_u64() && error["msg"].is_string() && error["cniVersion"].is_string(),
        "{error}"
    );
    error
}

fn address(result: &Value) -> String {
    let network = result["ips"][0]["address"].as_str().unwrap();
    network.strip_suffix("/32").unwrap().to_owned()
}

#[test]
fn add_gives_a_pod_its_interface_and_reports_it() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    pod.ip("link set lo down");
    let result = node.add("c1", &pod);

    let host_ifname = result["interfaces"][0]["name"].as_str().unwrap();
    assert_eq!(host_ifname, "swec43057c07aa", "sw and the hash of c1, eth0");
    let host = &node.netns.ip_json(&format!("-d link show {host_ifname}"))[0];
    let eth0 = &pod.ip_json("-d addr show eth0")[0];
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": host_ifname, "mac": host["address"]},
                {"name": "eth0", "mac": eth0["address"], "sandbox": pod_path(&pod)},
            ],
            "ips": [{"interface": 1, "address": "10.244.1.2/32", "gateway": "169.254.1.1"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
        })
    );
    assert_eq!((&host["mtu"], &eth0["mtu"]), (&json!(1450), &json!(1450)));
    assert_eq!(
        (&host["operstate"], &eth0["operstate"]),
        (&json!("UP"), &json!("UP"))
    );
    assert_eq!(host["ifalias"], "default/web");
    assert_eq!(eth0["addr_info"][0]["local"], "10.244.1.2");
    assert_eq!(eth0["addr_info"][0]["prefixlen"], 32);
    let lo = pod.ip_json("link show lo");
    assert!(lo[0]["flags"].as_array().unwrap().contains(&json!("UP")));

    let routes = pod.ip_json("route");
    assert_eq!(routes[0]["dst"], "default");
    assert_eq!(routes[0]["gateway"], "169.254.1.1");
    assert_eq!(
        (&routes[1]["dst"], &routes[1]["scope"]),
        (&json!("169.254.1.1"), &json!("link"))
    );
    let gateway = &pod.ip_json("neigh")[0];
    assert_eq!(gateway["lladdr"], host["address"]);
    assert_eq!(gateway["state"], json!(["PERMANENT"]));

    let route = node.netns.ip_json("route show proto 83");
    assert_eq!(
        route,
        json!([{"dst": "10.244.1.2", "dev": host_ifname, "scope": "link", "flags": []}])
    );
    let neighbour = &node.netns.ip_json("neigh")[0];
    assert_eq!(neighbour["lladdr"], eth0["address"]);
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}

#[test]
fn pods_and_node_reach_each_other_without_asking_for_hardware_addresses() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    let (ip_a, ip_b) = (address(&node.add("a", &a)), address(&node.add("b", &b)));
    for (from, to) in [
        (&node.netns, &ip_a),
        (&a, &ip_b),
        (&b, &ip_a),
        (&a, &"172.30.0.11".to_owned()),
    ] {
        assert_reaches(from, to);
    }
    let _web = b.serve(Tcp, "0.0.0.0:80", "b");
    let _host = node.netns.serve(Tcp, "0.0.0.0:80", "node");
    let answer = a.ask(Tcp, &format!("{ip_b}:80")).unwrap();
    assert_eq!(
        (answer.name.as_str(), answer.client.ip().to_string()),
        ("b", ip_a)
    );
    assert_eq!(node.netns.ask_tcp(&format!("{ip_b}:80")).unwrap(), "b");
    assert_eq!(a.ask_tcp("172.30.0.11:80").unwrap(), "node");
    for netns in [&node.netns, &a, &b] {
        for entry in netns.ip_json("neigh").as_array().unwrap() {
            assert_eq!(entry["state"], json!(["PERMANENT"]), "{entry}");
        }
    }
}

/// The end that comes up first gets its queues late (net/core/link_watch.c).
#[test]
fn the_first_packet_after_add_is_not_lost() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    for n in 0..10 {
        let (id, pod) = (format!("c{n}"), Netns::new("pod"));
        let address = address(&node.add(&id, &pod));
        if n % 2 == 0 {
            assert_reaches(&node.netns, &address);
        } else {
            assert_reaches(&pod, "172.30.0.11");
        }
        node.del(&id, "");
    }
}

#[test]
fn the_hosts_end_is_prepared() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    node.netns.sysctl("ipv4/conf/default/rp_filter", "1");
    node.netns.sysctl("ipv4/ip_forward", "0");
    let result = node.add("c1", &Netns::new("pod"));
    let name = result["interfaces"][0]["name"].as_str().unwrap();
    // The pod's namespace is gone here, and its interface goes with it, so
    // another one is looked at.
    let pod = Netns::new("pod2");
    let result = node.add("c2", &pod);
    assert_ne!(result["interfaces"][0]["name"], name);
    let name = result["interfaces"][0]["name"].as_str().unwrap();
    let read = |key: String| {
        let path = Path::new("/proc/sys/net").join(key);
        node.netns
            .enter(|| std::fs::read_to_string(&path))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(read("ipv4/ip_forward".into()), "1");
    assert_eq!(read(format!("ipv4/conf/{name}/forwarding")), "1");
    assert_eq!(read(format!("ipv4/conf/{name}/rp_filter")), "2");
    assert_eq!(read(format!("ipv4/conf/{name}/send_redirects")), "0");
    assert_eq!(read(format!("ipv6/conf/{name}/accept_ra")), "0");
}

#[test]
fn each_version_gets_its_own_form() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        node.conf["cniVersion"] = json!(version);
        let pod = Netns::new("pod");
        let result = node.add(version, &pod);
        assert_eq!(result["cniVersion"], version);
        let old = version < "1.0.0";
        assert_eq!(
            result["ips"][0]["version"],
            if old { json!("4") } else { Value::Null }
        );
        let new = version == "1.1.0";
        assert_eq!(
            result["interfaces"][1]["mtu"],
            if new { json!(1450) } else { Value::Null }
        );
        node.conf["prevResult"] = result;
        if version != "0.3.1" {
            let checked = node.call("CHECK", version, pod_path(&pod));
            assert!(
                checked.status.success() && checked.stdout.is_empty(),
                "{}",
                text(&checked)
            );
        }
        node.del(version, pod_path(&pod));
        node.conf["prevResult"] = Value::Null;
    }
    node.assert_empty();
}

#[test]
fn a_chained_result_is_passed_on() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.conf["prevResult"] = json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "net1", "sandbox": pod_path(&pod)}],
        "ips": [{"address": "192.0.2.7/24", "interface": 0}],
    });
    let result = node.add("c1", &pod);
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
    assert_eq!(
        result["ips"][0],
        json!({"address": "192.0.2.7/24", "interface": 0})
    );
    assert_eq!(result["ips"][1]["interface"], 2);
}

#[test]
fn del_leaves_nothing_and_can_be_repeated() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.add("c1", &pod);
    node.del("c1", pod_path(&pod));
    node.assert_empty();
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    for path in [pod_path(&pod), "", "/run/netns/absent", "/etc/passwd"] {
        node.del("c1", path);
    }
    node.assert_empty();
    node.del("never-seen", "");
}

#[test]
fn del_after_the_namespace_is_gone_and_with_a_strange_conf() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.add("c1", &pod);
    let path = pod_path(&pod).to_owned();
    drop(pod);
    assert_eq!(node.records().len(), 1);
    node.conf["strange"] = json!(1);
    node.conf["ipam"]["ranges"] = json!([{"subnet": "10.9.0.0/24"}]);
    node.del("c1", &path);
    assert_eq!(node.records(), [""; 0]);
}

#[test]
fn del_never_touches_another_pod() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    node.add("a", &a);
    let result = node.add("b", &b);
    // The runtime's path may by now belong to somebody else.
    node.del("a", pod_path(&b));
    assert_reaches(&node.netns, &address(&result));
    assert_eq!(node.records(), [format!("{}=b:eth0", address(&result))]);
}

#[test]
fn a_second_add_is_refused_and_harms_nothing() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let result = node.add("c1", &pod);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("container c1 has an attachment eth0 already")
    );
    assert_eq!(node.records().len(), 1);
    assert_reaches(&node.netns, &address(&result));
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn a_failed_add_leaves_nothing_and_says_why() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    let good = node.conf.clone();
    let msg = |error: &Value| error["msg"].as_str().unwrap().to_owned();

    let error = node.fails("ADD", "c1", "/run/netns/absent");
    assert_eq!(error["code"], 4);
    assert!(
        msg(&error).contains("CNI_NETNS=/run/netns/absent"),
        "{error}"
    );
    assert_eq!(node.fails("ADD", "c1", "/etc/passwd")["code"], 4);
    node.assert_empty();

    let error = node.fails("ADD", "c1", pod_path(&node.netns));
    assert_eq!(error["code"], 8, "the plugin's own namespace");
    node.assert_empty();

    pod.ip("link add eth0 type veth peer name x");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        msg(&error).contains("interface eth0 exists already in the pod's"),
        "{error}"
    );
    assert_eq!(pod.ip_json("link show eth0").as_array().unwrap().len(), 1);
    pod.ip("link del eth0");
    node.assert_empty();

    node.netns
        .ip("link add swec43057c07aa type veth peer name x");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        msg(&error).contains("swec43057c07aa exists already in the host's"),
        "{error}"
    );
    node.netns.ip("link del swec43057c07aa");
    node.assert_empty();

    // The last step: the host has a route to this address already.
    node.netns.ip("link add x0 type veth peer name x1");
    node.netns.ip("link set x0 up");
    node.netns.ip("route add 10.244.1.2/32 dev x0");
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert!(
        error["details"]
            .as_str()
            .unwrap()
            .contains("route add 10.244.1.2/32"),
        "{error}"
    );
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1, "only lo");
    node.netns.ip("link del x0");
    node.assert_empty();

    node.conf["mtuu"] = json!(1500);
    let error = node.fails("ADD", "c1", pod_path(&pod));
    assert_eq!(error["code"], 7);
    assert!(msg(&error).contains("mtuu: unknown key"), "{error}");
    node.conf = good;
    node.add("c1", &pod);
    let full = node.fails("ADD", "c2", pod_path(&Netns::new("pod2")));
    assert_eq!(full["code"], 11);
    assert_eq!(
        msg(&full),
        "no free address in 10.244.1.0/30: all 1 are taken, by 1 attachments"
    );
    node.del("c1", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn a_result_that_nobody_can_read_is_a_failed_add() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = node.command("ADD", "c1", pod_path(&pod));
    let mut child = command.stdin(Stdio::piped()).stdout(full).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(node.conf.to_string().as_bytes()).unwrap();
    drop(stdin);
    assert!(!child.wait().unwrap().success());
    node.assert_empty();
}

#[test]
fn check_names_what_is_missing() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let error = node.fails("CHECK", "c1", pod_path(&pod));
    assert_eq!(error["code"], 7, "no prevResult");
    for (damage, on_host, named) in [
        (
            "addr del 10.244.1.2/32 dev eth0",
            false,
            "eth0 lost 10.244.1.2/32",
        ),
        ("route del default", false, "default route"),
        ("neigh del 169.254.1.1 dev eth0", false, "169.254.1.1"),
        ("link set eth0 down", false, "eth0 is down"),
        ("route del 10.244.1.2", true, "route to 10.244.1.2/32"),
        ("link del swec43057c07aa", true, "eth0 is gone"),
    ] {
        node.conf["prevResult"] = Value::Null;
        node.conf["ipam"]["ranges"][0]["subnet"] = json!("10.244.1.0/30");
        let result = node.add("c1", &pod);
        node.conf["prevResult"] = result;
        assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
        (if on_host { &node.netns } else { &pod }).ip(damage);
        let error = node.fails("CHECK", "c1", pod_path(&pod));
        assert!(
            error["msg"].as_str().unwrap().contains(named),
            "{damage}: {error}"
        );
        node.del("c1", "");
        assert!(node.call("CHECK", "c1", pod_path(&pod)).status.code() == Some(1));
    }
}

#[test]
fn status_follows_the_pool() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    assert_eq!(
        node.fails("STATUS", "", "")["code"],
        1,
        "STATUS came with 1.1.0"
    );
    node.conf["cniVersion"] = json!("1.1.0");
    assert!(node.call("STATUS", "", "").status.success());
    node.add("c1", &pod);
    let error = node.fails("STATUS", "", "");
    assert_eq!(error["code"], 50);
    assert!(
        error["details"].as_str().unwrap().contains("10.244.1.0/30"),
        "{error}"
    );
    node.del("c1", "");
    assert!(node.call("STATUS", "", "").status.success());
}

#[test]
fn version_and_unknown_commands() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let version = success(&node.call("VERSION", "", ""));
    assert_eq!(
        version["supportedVersions"],
        json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    );
    assert_eq!(node.fails("GC", "c1", "")["code"], 4);
    let error = node.fails("ADD", "", "");
    assert_eq!(error["code"], 4);
    assert!(
        error["msg"]
            .as_str()
            .unwrap()
            .contains("CNI_CONTAINERID, CNI_NETNS"),
        "{error}"
    );
    let by_hand = node
        .netns
        .command(&node.program)
        .env_clear()
        .stdin(Stdio::null())
        .output();
    let by_hand = by_hand.unwrap();
    assert!(by_hand.status.success() && by_hand.stdout.is_empty());
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("1.1.0"));
}

#[test]
fn sixteen_adds_at_once_get_sixteen_addresses() {
    if !require_root() {
        return;
    }
    let node = Node::new("10.244.1.0/24");
    let pods: Vec<Netns> = (0..16).map(|_| Netns::new("pod")).collect();
    let children: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(n, pod)| {
            let mut command = node.command("ADD", &format!("c{n}"), pod_path(pod));
            let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = pipes.spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(node.conf.to_string().as_bytes()).unwrap();
            child
        })
        .collect();
    let addresses: BTreeSet<String> = children
        .into_iter()
        .map(|child| address(&success(&child.wait_with_output().unwrap())))
        .collect();
    assert_eq!(addresses.len(), 16);
    assert_eq!(node.records().len(), 16);
    for address in &addresses {
        assert_reaches(&node.netns, address);
    }
    for n in 0..16 {
        node.del(&format!("c{n}"), "");
    }
    node.assert_empty();
}

/// Killed by strace at its k-th call of a system call that changes something.
#[test]
fn a_killed_add_is_cleaned_by_del_and_the_next_add_works() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/29"), Netns::new("pod"));
    let mut killed = 0;
    for point in [
        "rename:when=1", // the record
        "rename:when=2", // the order
        "sendto:when=1", // the pair is not made
        "sendto:when=2", // the host's side
        "sendto:when=3", // the pod's side
        "write:when=1",
        "write:when=2",
    ] {
        let plain = node.command("ADD", "killed", pod_path(&pod));
        let mut command = node.netns.command("strace");
        command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let inject = format!("inject={point}:signal=KILL");
        command
            .args(["-f", "-o", "/dev/null", "-e", &inject])
            .arg(&node.program);
        let output = feed(command, &node.conf);
        killed += usize::from(!output.status.success());
        // Nobody else can have been given the same address.
        let other = Netns::new("other");
        let result = node.add("other", &other);
        let records = node.records();
        let holders: BTreeSet<&str> = records.iter().filter_map(|r| r.split('=').next()).collect();
        assert_eq!(holders.len(), records.len(), "{point}: {records:?}");
        assert_reaches(&node.netns, &address(&result));
        for id in ["killed", "other"] {
            node.del(id, "");
        }
        node.assert_empty();
        assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1, "{point}");
    }
    assert_eq!(killed, 7, "strace did not kill at every point");
    node.add("killed", &pod);
    node.del("killed", pod_path(&pod));
    node.assert_empty();
}

#[test]
fn a_killed_add_that_is_repeated_goes_on_with_its_address() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/30"), Netns::new("pod"));
    node.add("c1", &pod);
    // As if it had been killed between the record and the interface.
    node.netns.ip("link del swec43057c07aa");
    let result = node.add("c1", &pod);
    assert_reaches(&node.netns, &address(&result));
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}

#[test]
fn called_as_loopback_it_brings_lo_up() {
    if !require_root() {
        return;
    }
    let (mut node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    pod.ip("link set lo down");
    let loopback = node.dir.path().join("loopback");
    std::os::unix::fs::symlink(bin("seaway-cni"), &loopback).unwrap();
    node.program = loopback;
    // What containerd sends.
    node.conf = json!({"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"});
    let result = node.add("c1", &pod);
    assert_eq!(result["interfaces"][0]["name"], "lo");
    assert_eq!(result["interfaces"][0]["sandbox"], pod_path(&pod));
    assert_eq!(
        result["ips"][0],
        json!({"version": "4", "interface": 0, "address": "127.0.0.1/8"})
    );
    assert_eq!(result["ips"][1]["address"], "::1/128");
    assert_reaches(&pod, "127.0.0.1");
    assert!(node.call("CHECK", "c1", pod_path(&pod)).status.success());
    node.conf["prevResult"] = json!({"cniVersion": "0.3.1", "dns": {"domain": "x"}});
    assert_eq!(
        node.add("c1", &pod),
        json!({"cniVersion": "0.3.1", "dns": {"domain": "x"}})
    );
    node.del("c1", pod_path(&pod));
    assert_eq!(node.fails("CHECK", "c1", pod_path(&pod))["code"], 102);
    node.del("c1", "");
    node.del("c1", "/run/netns/absent");
    success(&node.call("VERSION", "", ""));
    node.assert_empty();
}

#[test]
fn the_program_name_decides_not_the_file() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let mut command = node.command("ADD", "c1", pod_path(&pod));
    command.arg0("/opt/cni/bin/loopback");
    let result = success(&feed(command, &node.conf));
    assert_eq!(result["interfaces"][0]["name"], "lo");
}
