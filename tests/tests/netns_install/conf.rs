//! The life of the CNI conf while the daemon runs.

use std::fs;
use std::time::{Duration, Instant};

use seaway_testbed::require_root;
use serde_json::json;

use crate::daemon::{API, CONF, Daemon, Node};
use crate::status::node as node_object;
use seaway_testbed::fake_api::{FakeApi, NODES};

const STATE: &str = "run/pod-network.json";
/// In which boot the conf was written.
const MARKER: &str = "run/cni-conf.boot-id";
const METRICS: &str = "127.0.0.1:10249";

/// A daemon that has all it needs but for the Nodes, which are held if `held`.
fn start(node: &Node, held: bool) -> (FakeApi, Daemon) {
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), held.then_some(NODES));
    api.apply(NODES, node_object("a", "172.30.0.11", "10.244.0.0/24"));
    (api, node.start("off"))
}

/// Conf, marker and state as a daemon has left them before the machine was started again.
fn leave_those_of_an_earlier_boot(node: &Node) {
    for folder in ["net.d", "run"] {
        fs::create_dir(node.path(folder)).unwrap();
    }
    fs::write(node.path(CONF), "{\"name\":\"seaway\"}").unwrap();
    let boot = "11111111-2222-3333-4444-555555555555";
    fs::write(node.path(MARKER), format!("{boot}\n")).unwrap();
    let state = json!({ "bootId": boot, "mode": "direct", "mtu": 1430 });
    fs::write(node.path(STATE), state.to_string()).unwrap();
}

/// Until the node serves nobody is to believe that it does, by files of an earlier boot either.
#[test]
fn no_conf_while_the_api_server_is_held_back() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    leave_those_of_an_earlier_boot(&node);
    let files = [CONF, MARKER, STATE].map(|file| node.path(file));
    assert!(files.iter().all(|file| file.exists()));
    let (api, daemon) = start(&node, true);
    // The API server has said nothing yet, and does not before it is let.
    daemon.wait("the files of the earlier boot to go", || {
        !files.iter().any(|file| file.exists())
    });
    daemon.wait_said(&["Withdrew the CNI conf of an earlier boot"]);
    daemon.wait("the request for Nodes", || {
        api.requests().iter().any(|request| request.contains(NODES))
    });
    daemon.wait("/livez", || node.get("/livez").is_ok());
    assert!(!node.path(CONF).exists() && !node.path(STATE).exists());
    let released = Instant::now();
    api.release();
    daemon.wait("the conf", || node.path(CONF).exists());
    let took = released.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}: {}", daemon.log());
    assert!(node.path(STATE).exists());
}

/// Bug row 34: a runtime without a conf makes the node unready.
#[test]
fn what_somebody_takes_away_is_written_again() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let (_api, daemon) = start(&node, false);
    daemon.wait("the conf", || node.path(CONF).exists());
    let (conf, state) = (node.path(CONF), node.path(STATE));
    let (conf_text, state_text) = (fs::read(&conf).unwrap(), fs::read(&state).unwrap());
    let whole = || {
        fs::read(&conf).is_ok_and(|text| text == conf_text)
            && fs::read(&state).is_ok_and(|text| text == state_text)
    };
    fs::remove_file(&conf).unwrap();
    daemon.wait("the conf that was removed", whole);
    fs::remove_dir_all(node.path("net.d")).unwrap();
    daemon.wait("the conf in a new folder", whole);
    fs::write(&conf, "{}").unwrap();
    daemon.wait("the conf that was changed", whole);
    fs::remove_file(&state).unwrap();
    daemon.wait("the state", whole);
    assert_eq!(
        daemon.said(&["WARN", "Wrote the CNI conf again"]),
        3,
        "{}",
        daemon.log()
    );
    // Bug row 36: it stays when the daemon ends.
    assert!(daemon.terminate().success());
    assert!(whole());
}

/// A conf that cannot be written is said once, and written as soon as it can be.
#[test]
fn a_conf_that_cannot_be_written_is_tried_again() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    fs::write(node.path("net.d"), "a file where a folder should be").unwrap();
    let (_api, daemon) = start(&node, false);
    daemon.wait_said(&["Cannot write the CNI conf", "net.d"]);
    fs::remove_file(node.path("net.d")).unwrap();
    daemon.wait("the conf", || node.path(CONF).exists());
    assert_eq!(
        daemon.said(&["Cannot write the CNI conf"]),
        1,
        "{}",
        daemon.log()
    );
}

#[test]
fn case_61_the_daemon_names_foreign_confs() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    fs::create_dir(node.path("net.d")).unwrap();
    fs::write(node.path("net.d/05-other.conflist"), "{\"name\":\"other\"}").unwrap();
    let (_api, daemon) = start(&node, false);
    daemon.wait("the conf", || node.path(CONF).exists());
    daemon.wait_said(&[
        "WARN",
        "sorts before ours",
        "05-other.conflist",
        "\"other\"",
    ]);
    fs::write(node.path("net.d/10-late.conf"), "{\"name\":\"late\"}").unwrap();
    daemon.wait_said(&[
        "WARN",
        "whenever ours is not there",
        "10-late.conf",
        "\"late\"",
    ]);
    let measured = |line: &str| {
        let (_, text) = node.get_from(METRICS, "/metrics").unwrap();
        text.lines().any(|l| l == line)
    };
    daemon.wait("the metrics", || {
        measured("seaway_pod_network_foreign_conf_first 1")
            && measured("seaway_pod_network_foreign_confs 2")
    });
    assert_eq!(daemon.said(&["05-other.conflist"]), 1, "{}", daemon.log());
    // It is the operator's business, and no illness of ours.
    assert_eq!(node.get("/healthz").unwrap().0, 200);
    for name in ["05-other.conflist", "10-late.conf"] {
        fs::remove_file(node.path("net.d").join(name)).unwrap();
    }
    daemon.wait("no foreign conf", || {
        measured("seaway_pod_network_foreign_conf_first 0")
            && measured("seaway_pod_network_foreign_confs 0")
    });
}
