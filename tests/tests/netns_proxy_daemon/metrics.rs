//! What dashboards of kube-proxy ask for besides its own work: the process, and what the API
//! server answers. The oracles are `/proc` of the daemon and the clock.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use seaway_testbed::fake_api::FakeApi;
use seaway_testbed::require_root;

use crate::fill;
use crate::node::{API, Daemon, Node};

/// The value of a line, without labels or with all of them.
fn value(node: &Node, line: &str) -> Option<f64> {
    let (code, text) = node.get_from("127.0.0.1:10249", "/metrics").unwrap();
    assert_eq!(code, 200, "{text}");
    let mut lines = text.lines();
    let value = lines.find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
    value.map(|value| value.parse().unwrap())
}

fn grows(node: &Node, daemon: &Daemon, line: &str) {
    daemon.wait(line, || value(node, line).is_some_and(|value| value > 0.0));
}

/// How many requests had this answer.
fn answers(code: &str, method: &str) -> String {
    format!("rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"{API}\"}}")
}

/// The first number of a line of a file of the daemon's in `/proc`.
fn in_proc(daemon: &Daemon, file: &str, line: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).unwrap();
    let rest = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[test]
fn a_dashboard_sees_how_the_process_and_the_api_server_fare() {
    if !require_root() {
        return;
    }
    let node = Node::new();
    let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
    fill(&api);
    let before = unix_now();
    let flags = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];
    let daemon = node.start_with("iptables", &flags);
    daemon.wait_said(&["Programmed all Services"]);

    // The clock may be a second or two off: the kernel rounds when it began.
    let started = value(&node, "process_start_time_seconds").unwrap();
    let (from, to) = (before.as_secs_f64() - 2.0, unix_now().as_secs_f64() + 2.0);
    assert!((from..to).contains(&started), "{from} {started} {to}");
    let resident = value(&node, "process_resident_memory_bytes").unwrap();
    let of_kernel = in_proc(&daemon, "status", "VmRSS:") * 1024.0;
    let near = resident > of_kernel / 2.0 && resident < of_kernel * 2.0;
    assert!(near, "{resident}, but VmRSS {of_kernel}");
    let most = value(&node, "process_max_fds").unwrap();
    let of_kernel = in_proc(&daemon, "limits", "Max open files");
    assert!((most - of_kernel).abs() < 1.0, "{most} {of_kernel}");
    assert!(value(&node, "process_open_fds").is_some_and(|open| (3.0..most).contains(&open)));
    grows(&node, &daemon, "process_cpu_seconds_total");

    // Services, their slices and this Node.
    daemon.wait("three requests", || {
        value(&node, &answers("200", "GET")).is_some_and(|count| count >= 3.0)
    });
    // The event of the start.
    grows(&node, &daemon, &answers("201", "POST"));
    for verb in ["GET", "POST"] {
        let name = "rest_client_request_duration_seconds_count";
        let line = format!("{name}{{verb=\"{verb}\",host=\"{API}\"}}");
        grows(&node, &daemon, &line);
    }

    let refused = answers("403", "GET");
    assert_eq!(value(&node, &refused), None);
    api.refuse(Some("403 Forbidden"));
    api.break_off();
    grows(&node, &daemon, &refused);
}
