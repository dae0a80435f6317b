//! Uninstalling: the conf first, the plugin last, and nothing left.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use seaway_testbed::{Netns, XTABLES_WAIT, require_root, strace_is_missing, write_program};
use serde_json::{Value, json};

use crate::cni::{self, feed, pod_path, success, text};
use crate::daemon::{API, CONF, Node};
use crate::disk::{Disk, names, said};
use crate::status::node as node_object;
use seaway_testbed::fake_api::{FakeApi, NODES};

/// The plugin as a runtime calls it, with the conf that the daemon has written.
struct Runtime<'a> {
    node: &'a Node,
    plugin: cni::Node,
    conf: Value,
}

impl<'a> Runtime<'a> {
    fn new(node: &'a Node, disk: &Disk) -> Self {
        let list: Value = serde_json::from_slice(&fs::read(node.path(CONF)).unwrap()).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["name"] = list["name"].clone();
        conf["cniVersion"] = list["cniVersion"].clone();
        let mut plugin = cni::Node::new("10.244.9.0/24");
        plugin.program = disk.path("bin/seaway-cni");
        Self { node, plugin, conf }
    }

    fn call(&self, verb: &str, pod: &Netns) -> std::process::Output {
        let words = self.plugin.command(verb, "c1", pod_path(pod));
        let mut command = self.node.netns.command(words.get_program());
        let envs = words.get_envs().filter_map(|(k, v)| Some((k, v?)));
        command.env_clear().envs(envs);
        feed(command, &self.conf)
    }
}

/// The folders of `node` for the daemon, those of `disk` for what is installed.
fn cleanup(node: &Node, disk: &Disk) -> (Option<i32>, String) {
    let output = of_disk(node.command("cleanup"), disk).output().unwrap();
    (output.status.code(), said(&output))
}

fn of_disk(mut command: Command, disk: &Disk) -> Command {
    command.arg("--cni-bin-dir").arg(disk.path("bin"));
    command.arg("--network-manager-dir").arg(disk.path("nm"));
    command.arg("--systemd-run-dir").arg(disk.path("systemd"));
    command
}

/// The removals and renames of a cleanup, each with its paths, in their order.
fn traced_cleanup(node: &Node, disk: &Disk) -> Vec<String> {
    // strace does not join the node's mounts, so the machine's BPF objects are kept out of it.
    let plain = of_disk(node.command_with("cleanup", &node.path("pins")), disk);
    let log = node.path("trace");
    let mut command = node.netns.command("strace");
    let envs = plain.get_envs().filter_map(|(k, v)| Some((k, v?)));
    command.env_clear().envs(envs);
    let calls = "trace=unlink,unlinkat,rename,renameat,renameat2";
    command.args(["-f", "-s", "9999", "-e", calls, "-o"]);
    command.arg(&log).arg(plain.get_program());
    let output = command.args(plain.get_args()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let log = fs::read_to_string(log).unwrap();
    // Ends of calls, of threads and of processes name no path.
    let calls = log.lines().filter(|line| line.contains('"'));
    calls.map(str::to_owned).collect()
}

/// Another network's conf, and daemons of networks that are to be told of us.
fn beside_others(node: &Node, disk: &Disk, conf: &str) {
    // The confs are the daemon's folder, so both look at one.
    std::os::unix::fs::symlink(node.path("net.d"), disk.path("net.d")).unwrap();
    fs::create_dir(node.path("net.d")).unwrap();
    fs::write(node.path("net.d/05-bridge.conflist"), conf).unwrap();
    fs::create_dir_all(disk.path("nm")).unwrap();
    fs::create_dir_all(disk.path("systemd/netif")).unwrap();
    fs::create_dir_all(disk.path("systemd/system")).unwrap();
}

fn install(node: &Node, disk: &Disk, flags: &[&str]) -> String {
    let mut command = disk.command(&disk.install_words("new"));
    // The last one counts.
    command.args(flags).env("SEAWAY_RUN_DIR", node.path("run"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[test]
fn case_61_uninstall_takes_the_conf_first_and_the_plugin_when_no_pod_is_left() {
    if !require_root() {
        return;
    }
    let (node, disk, pod) = (Node::new(), Disk::new(), Netns::new("pod"));
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    api.apply(NODES, node_object("a", "172.30.0.11", "10.244.0.0/24"));
    api.apply(NODES, node_object("b", "172.30.0.12", "10.244.1.0/24"));
    let links = node.netns.ip_json("link");
    // Somebody who wants nothing forwarded, so that pods need an accept.
    for iptables in ["iptables-nft", "ip6tables-nft"] {
        node.netns.must_run(&[iptables, "-P", "FORWARD", "DROP"]);
    }
    let (rules, tables) = (node.rules(), node.nft());
    let foreign = "{\"name\":\"bridge\"}";
    beside_others(&node, &disk, foreign);

    let warned = install(&node, &disk, &["--loopback"]);
    assert!(
        warned.contains("05-bridge.conflist") && warned.contains("\"bridge\""),
        "{warned}"
    );
    let flags = ["--loopback", "--take-over-conf", "05-bridge.conflist"];
    let quiet = install(&node, &disk, &flags);
    assert!(!quiet.contains("WARN"), "{quiet}");
    let daemon = node.start("off");
    daemon.wait("the conf", || node.path(CONF).exists());
    let mut runtime = Runtime::new(&node, &disk);
    runtime.conf["runtimeConfig"] = json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    });
    success(&runtime.call("ADD", &pod));
    assert!(daemon.terminate().success());
    assert!(node.has_rule("seaway: to pods"), "{:?}", node.rules());

    let (code, told) = cleanup(&node, &disk);
    assert_eq!(code, Some(1), "{told}");
    assert_eq!((node.rules(), node.nft()), (rules.clone(), tables.clone()));
    for part in [
        "bin/seaway-cni stays",
        "1 pods",
        "default/web (container c1:eth0)",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // All but what the pod needs is gone, and the former network is back.
    assert_eq!(names(&node.path("net.d")), ["05-bridge.conflist"]);
    assert_eq!(
        fs::read_to_string(node.path("net.d/05-bridge.conflist")).unwrap(),
        foreign
    );
    assert_eq!(names(&disk.path("bin")), ["loopback", "seaway-cni"]);
    assert!(
        !node.routes().contains("10.244.1.0/24"),
        "{}",
        node.routes()
    );
    assert_eq!(names(&disk.path("nm/conf.d")), [""; 0]);
    assert_eq!(names(&disk.path("systemd")), ["netif", "system"]);
    assert!(!disk.path("sysctl.d").exists());
    assert_eq!(names(&node.path("run")), ["cni"]);
    let output = runtime.call("DEL", &pod);
    assert!(output.status.success(), "{}", text(&output));

    let (code, told) = cleanup(&node, &disk);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("Removed part=\"the CNI plugin\""), "{told}");
    assert_eq!(names(&disk.path("bin")), [""; 0]);
    assert!(!node.path("run").exists());
    assert_eq!((node.routes().as_str(), node.nft()), ("", tables));
    assert_eq!(node.rules(), rules);
    assert_eq!(node.netns.ip_json("link"), links);
    let (code, told) = cleanup(&node, &disk);
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains("Removed"), "{told}");
}

/// Whenever it is stopped, no runtime is told of a plugin that is not there any more.
#[test]
fn case_61_cleanup_takes_the_conf_before_all_else_and_the_plugin_after_it() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, disk) = (Node::new(), Disk::new());
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    api.apply(NODES, node_object("a", "172.30.0.11", "10.244.0.0/24"));
    beside_others(&node, &disk, "{\"name\":\"bridge\"}");
    let flags = ["--loopback", "--take-over-conf", "05-bridge.conflist"];
    install(&node, &disk, &flags);
    let daemon = node.start("off");
    daemon.wait("the conf", || node.path(CONF).exists());
    assert!(daemon.terminate().success());

    let calls = traced_cleanup(&node, &disk);
    assert!(!node.path(CONF).exists() && names(&disk.path("bin")).is_empty());
    let at = |path: PathBuf| {
        let path = format!("\"{}\"", path.display());
        let found = calls.iter().position(|call| call.contains(&path));
        found.unwrap_or_else(|| panic!("{path}: {calls:#?}"))
    };
    let (conf, plugin) = (at(node.path(CONF)), at(disk.path("bin/seaway-cni")));
    assert_eq!(conf, 0, "{calls:#?}");
    for before in [
        node.path("run/pod-network.json"),
        disk.path("nm/conf.d/50-seaway.conf"),
        disk.path("systemd/network/50-seaway.network"),
        disk.path("sysctl.d/zzz-seaway.conf"),
        node.path("net.d/05-bridge.conflist.seaway-disabled"),
        disk.path("bin/loopback"),
    ] {
        assert!(at(before) < plugin, "{calls:#?}");
    }
    // Its own bookkeeping, which nobody but the plugin would read.
    let run = node.path("run/cni").display().to_string();
    for after in &calls[plugin + 1..] {
        assert!(after.contains(&run), "{after}");
    }
}

#[test]
fn case_61_remove_comes_after_cleanup() {
    let disk = Disk::new();
    disk.write("net.d/10-other.conflist", "{\"name\":\"other\"}");
    disk.install(
        "old",
        &["--loopback", "--take-over-conf", "10-other.conflist"],
    );
    disk.write("net.d/05-seaway.conflist", "{}");
    let mut words = disk.places("install");
    words.push("--remove".to_owned());
    let output = disk.command(&words).output().unwrap();
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("05-seaway.conflist") && told.contains("cleanup"),
        "{told}"
    );
    assert_eq!(names(&disk.path("bin")), ["loopback", "seaway-cni"]);
    fs::remove_file(disk.path("net.d/05-seaway.conflist")).unwrap();
    for _ in 0..2 {
        let output = disk.command(&words).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(names(&disk.path("bin")), [""; 0]);
        assert_eq!(names(&disk.path("net.d")), ["10-other.conflist"]);
    }
}

/// A program that notes how it was called.
fn tool(disk: &Disk, name: &str) {
    let (tools, log) = (disk.path("tools"), disk.path("calls"));
    fs::create_dir_all(&tools).unwrap();
    let script = format!("#!/bin/sh\necho {name} \"$@\" >> {}\n", log.display());
    write_program(&tools.join(name), &script);
}

#[test]
fn case_62_network_daemons_are_told_and_asked_to_listen() {
    let disk = Disk::new();
    tool(&disk, "nmcli");
    tool(&disk, "networkctl");
    disk.install("old", &[]);
    assert!(!disk.path("nm").exists() && !disk.path("calls").exists());
    assert!(!disk.path("sysctl.d").exists());
    disk.write("nm/NetworkManager.conf", "");
    disk.write("systemd/netif/links", "");
    disk.write("systemd/system/ctrl", "");
    let calls = || fs::read_to_string(disk.path("calls")).unwrap_or_default();
    disk.install("old", &["--host-config", "off"]);
    assert_eq!(names(&disk.path("nm")), ["NetworkManager.conf"]);
    assert!(!disk.path("sysctl.d").exists());
    disk.install("old", &[]);
    disk.install("old", &[]);
    let once = "nmcli general reload conf\nnetworkctl reload\n";
    assert_eq!(calls(), once);
    let settings = fs::read_to_string(disk.path("nm/conf.d/50-seaway.conf")).unwrap();
    assert!(
        settings.contains("\nunmanaged-devices+=interface-name:sw"),
        "{settings}"
    );
    assert_eq!(names(&disk.path("systemd/network")), ["50-seaway.network"]);
    assert_eq!(
        names(&disk.path("systemd/networkd.conf.d")),
        ["50-seaway.conf"]
    );
    assert_eq!(names(&disk.path("sysctl.d")), ["zzz-seaway.conf"]);
    let mut words = disk.places("install");
    words.push("--remove".to_owned());
    assert!(disk.command(&words).status().unwrap().success());
    assert_eq!(calls(), format!("{once}{once}"));
    assert_eq!(names(&disk.path("nm/conf.d")), [""; 0]);
    assert_eq!(names(&disk.path("systemd")), ["netif", "system"]);
    assert!(!disk.path("sysctl.d").exists());
}

/// Rules that an earlier run made with the flavour that is not in use now.
#[test]
fn cleanup_tells_of_rules_of_the_other_flavour() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let works = |words: &[&str]| node.netns.run(words).status.success();
    let legacy = format!("iptables-legacy {XTABLES_WAIT} -t nat -N SEAWAY-SERVICES");
    if !works(&legacy.split(' ').collect::<Vec<_>>()) {
        seaway_testbed::skip("needs iptables-legacy in the kernel");
        return;
    }
    // kubelet's word decides for nft.
    assert!(works(&[
        "iptables-nft",
        "-t",
        "mangle",
        "-N",
        "KUBE-IPTABLES-HINT"
    ]));
    let there = || {
        let mut command: Command = node.netns.command("iptables-legacy-save");
        String::from_utf8(command.output().unwrap().stdout)
            .unwrap()
            .contains("SEAWAY-")
    };
    assert!(there());
    let told = node.cleanup();
    assert!(
        told.contains("Removed part=\"the iptables rules\""),
        "{told}"
    );
    assert!(!there());
    let told = node.cleanup();
    assert!(
        told.contains("Nothing to remove part=\"the iptables rules\""),
        "{told}"
    );
}
