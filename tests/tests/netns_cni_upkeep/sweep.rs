//! What dead pods have left goes.

use std::time::Duration;

use seaway_testbed::{Netns, require_root, wait_until, write_program};
use serde_json::json;

use crate::node::{Node, address, assert_reaches, feed, pod_path, success};
use crate::verbs::{add, mapping, nothing, output, released, sweep, sweep_twice};

/// The namespace's end takes its interfaces with it, in the kernel's own time.
pub(crate) fn die(node: &Node, pods: Vec<Netns>) {
    let links = || node.netns.ip_json("link").as_array().unwrap().len();
    let left = links() - pods.len();
    drop(pods);
    let gone = || {
        Ok(if links() == left {
            Ok(())
        } else {
            Err(links().to_string())
        })
    };
    wait_until(Duration::from_mins(1), "the interfaces to go", gone).unwrap();
}

#[test]
fn case_70_a_dead_pod_is_released_after_two_looks() {
    if !require_root() {
        return;
    }
    let mut node = Node::with_ranges(&["10.244.1.0/24", "fd00:1:2::/64"]);
    let (live, dead) = (Netns::new("live"), Netns::new("dead"));
    let ports = |port| [mapping("", port, "tcp"), mapping("", port, "udp")];
    let ip = address(&add(&mut node, "live", &live, &ports(8080)));
    add(&mut node, "dead", &dead, &ports(8081));
    let records = node.records();
    die(&node, vec![dead]);

    let words = ["sweep", "--network", "seaway", "--apart", "2"];
    let look = || -> serde_json::Value {
        let output = output(&node, &words);
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let first = std::time::Instant::now();
    let swept = wait_until(Duration::from_mins(2), "the second look to count", || {
        let seen = look();
        if !released(&seen).is_empty() {
            return Ok(Ok(seen));
        }
        assert_eq!(seen["waiting"], json!(1));
        assert_eq!(node.records(), records);
        Ok(Err(seen.to_string()))
    });
    let swept = swept.unwrap();
    assert!(first.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        swept["released"],
        json!([{"containerId": "dead", "ifname": "eth0", "addresses": ["10.244.1.3", "fd00:1:2::3"]}])
    );
    let nft = node.netns.must_run(&["nft", "list", "ruleset"]);
    assert!(nft.contains("8080") && !nft.contains("8081"), "{nft}");
    assert_eq!(look(), nothing());
    assert_reaches(&node.netns, &ip);
    node.del("live", pod_path(&live));
    node.assert_empty();
    assert!(!node.dir.path().join("cni/seaway/sweep.json").exists());
}

#[test]
fn case_49_records_of_other_boots_are_purged_without_an_add() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let ip = address(&node.add("c1", &pod));
    let old = node
        .dir
        .path()
        .join("cni/seaway/00000000-0000-4000-8000-000000000000");
    std::fs::create_dir(&old).unwrap();
    for n in 2..202 {
        std::fs::write(old.join(format!("10.244.1.{n}=old{n}:eth0")), "{}").unwrap();
    }
    let swept = sweep(&node);
    assert_eq!(swept["purgedBoots"], 1, "{swept}");
    assert!(!old.exists());
    assert_reaches(&node.netns, &ip);
    assert_eq!(node.records(), ["10.244.1.2=c1:eth0"]);
}

#[test]
fn case_50_damaged_records_follow_their_interface_and_foreign_files_stay() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let ip = address(&node.add("live", &pod));
    let write =
        |name: &str, text: &str| std::fs::write(node.record_dir().join(name), text).unwrap();
    write("10.244.1.2=live:eth0", "");
    write("10.244.1.9=dead:eth0", "");
    write("10.244.1.10=cut:eth0", "{\"bootId\":\"x\",\"addr");
    write("README", "mine");
    write(".new-4711", "{");
    std::fs::write(node.dir.path().join("cni/seaway/sweep.json"), "garbage").unwrap();
    let swept = sweep_twice(&node);
    let mut gone = released(&swept);
    gone.sort_unstable();
    assert_eq!(gone, ["cut", "dead"]);
    assert!(
        swept["skipped"].to_string().contains("cannot be read"),
        "{swept}"
    );
    assert_eq!(node.records(), ["10.244.1.2=live:eth0"]);
    assert!(node.record_dir().join("README").exists());
    assert!(!node.record_dir().join(".new-4711").exists());
    // Its address is nobody else's.
    let other = Netns::new("other");
    assert_ne!(address(&node.add("other", &other)), ip);
    assert_reaches(&node.netns, &ip);
}

#[test]
fn case_70_a_dead_pod_is_remembered_where_addresses_stick() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    node.conf["ipam"]["sticky"] = json!(true);
    node.conf["ipam"]["stickyDir"] = json!(node.dir.path().join("sticky"));
    let dead = Netns::new("dead");
    let ip = address(&node.add("c1", &dead));
    die(&node, vec![dead]);
    assert_eq!(released(&sweep_twice(&node)), ["c1"]);
    // The pod of the same name comes again.
    let again = Netns::new("again");
    assert_eq!(address(&node.add("c2", &again)), ip);
}

#[test]
fn case_70_another_ipam_plugin_is_told_of_a_dead_pod() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let dir = node.dir.path().join("bin");
    std::fs::create_dir(&dir).unwrap();
    let script = "#!/bin/sh\n\
        d=$(/usr/bin/dirname \"$0\")\n\
        [ ! -e \"$d/fail\" ] || exit 1\n\
        echo \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS\" >> \"$d/calls\"\n\
        /bin/cat > \"$d/stdin-$CNI_COMMAND\"\n\
        [ \"$CNI_COMMAND\" != ADD ] || echo '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.7.0.9/24\"}]}'\n";
    write_program(&dir.join("other-ipam"), script);
    node.conf["dataDir"] = node.conf["ipam"]["dataDir"].clone();
    node.conf["ipam"] = json!({"type": "other-ipam", "strange": 1});
    let pod = Netns::new("pod");
    let mut command = node.command("ADD", "c1", pod_path(&pod));
    command.env("CNI_PATH", &dir);
    success(&feed(command, &node.conf));
    die(&node, vec![pod]);

    // As long as it cannot be told, the record says that there is something to tell.
    std::fs::write(dir.join("fail"), "").unwrap();
    sweep(&node);
    let words = ["sweep", "--network", "seaway", "--apart", "0"];
    let failed = output(&node, &words);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stdout).contains("other-ipam"));
    assert_eq!(node.records(), ["10.7.0.9=c1:eth0"]);
    std::fs::remove_file(dir.join("fail")).unwrap();
    assert_eq!(released(&sweep(&node)), ["c1"]);
    let calls = std::fs::read_to_string(dir.join("calls")).unwrap();
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web";
    assert_eq!(calls, format!("ADD c1 eth0 {args}\nDEL c1 eth0 {args}\n"));
    let stdin = |verb: &str| std::fs::read_to_string(dir.join(format!("stdin-{verb}"))).unwrap();
    assert_eq!(stdin("DEL"), stdin("ADD"));
    node.assert_empty();
}

#[test]
fn a_hostport_whose_record_is_lost_is_closed() {
    if !require_root() {
        return;
    }
    let mut node = Node::new("10.244.1.0/24");
    let (lost, live) = (Netns::new("lost"), Netns::new("live"));
    add(&mut node, "lost", &lost, &[mapping("", 8080, "tcp")]);
    add(&mut node, "live", &live, &[mapping("", 8081, "tcp")]);
    let map = || {
        let words = ["nft", "list", "map", "ip", "seaway", "hostports-any"];
        node.netns.must_run(&words)
    };
    for record in node.records() {
        std::fs::remove_file(node.record_dir().join(record)).unwrap();
    }
    sweep(&node);
    sweep(&node);
    assert!(
        map().contains("8080") && map().contains("8081"),
        "both live"
    );
    die(&node, vec![lost]);
    let first = sweep(&node);
    assert_eq!(first["closedHostPorts"], json!([]), "{first}");
    let second = sweep(&node);
    assert_eq!(second["closedHostPorts"], json!(["10.244.1.2"]), "{second}");
    assert!(
        !map().contains("8080") && map().contains("8081"),
        "{}",
        map()
    );
    assert_eq!(sweep(&node)["closedHostPorts"], json!([]));
    // As if that one had been killed after it closed the ports, before it forgot their flows.
    let sign = "add element ip seaway hostports-pods { 10.244.1.2 . 10.244.1.2 }";
    node.netns.must_run(&["nft", sign]);
    sweep(&node);
    assert_eq!(sweep(&node)["closedHostPorts"], json!(["10.244.1.2"]));
    let signs = ["nft", "list", "set", "ip", "seaway", "hostports-pods"];
    assert!(!node.netns.must_run(&signs).contains("10.244.1.2 "));
    node.del("live", "");
}
