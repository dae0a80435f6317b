//! Networks of the plugin that have other names than the daemon's own.

use std::fs;
use std::time::Instant;

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root};
use serde_json::{Value, json};

use super::Kept;

/// By a conf that somebody has written by hand, as for a pod's second interface.
#[track_caller]
fn add_to_other(kept: &Kept, pod: &Netns) -> String {
    let mut conf = kept.conf(&Value::Null);
    conf["name"] = json!("other");
    conf["ipam"]["ranges"] = json!([{"subnet": "10.7.0.0/24"}]);
    let file = kept.node.path("conf-other");
    fs::write(&file, conf.to_string()).unwrap();
    let mut command = kept.command("ADD", "web", pod.path().to_str().unwrap());
    command.stdin(fs::File::open(file).unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

#[test]
fn case_64_70_networks_of_other_names_are_repaired_and_swept_as_well() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&["--sweep-interval", "1"]);
    let pod = Netns::new("pod");
    let to = format!("{}:80", add_to_other(&kept, &pod));
    let server = pod.serve(Tcp, "0.0.0.0:80", "web");
    let answers = || kept.node.netns.ask_tcp(&to).is_ok_and(|name| name == "web");
    assert!(answers(), "{}", kept.daemon.log());
    kept.node.netns.ip("route flush proto 83");
    kept.within(Instant::now(), "the route to the pod", answers);

    // The first of the two looks that it takes.
    let seen = kept.node.path("run/cni/other/sweep.json");
    assert!(!seen.exists());
    drop((server, pod));
    kept.daemon.wait("a look at the dead pod", || seen.exists());
    assert_eq!(kept.metric("seaway_cni_upkeep_failures_total"), 0);
}
