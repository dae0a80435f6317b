//! The test bed's own promises: private, answering, gone afterwards.

use std::io;
use std::path::Path;

use seaway_testbed::peer::Protocol::{Tcp, Udp, UdpUnconnected};
use seaway_testbed::{
    Cgroup2, Join, Netns, PrivateMounts, XTABLES_WAIT, bin, connect, require_root, uts_namespace,
};

fn two_hosts() -> (Netns, Netns) {
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    connect(&a, "eth0", "10.0.0.1/24", &b, "eth0", "10.0.0.2/24");
    (a, b)
}

#[test]
fn servers_answer_with_their_name_and_tell_who_asked() {
    if !require_root() {
        return;
    }
    let (client, host) = two_hosts();
    let _tcp = host.serve(Tcp, "0.0.0.0:80", "web");
    let _udp = host.serve(Udp, "0.0.0.0:53", "dns");
    for (protocol, address, name) in [
        (Tcp, "10.0.0.2:80", "web"),
        (Udp, "10.0.0.2:53", "dns"),
        (UdpUnconnected, "10.0.0.2:53", "dns"),
    ] {
        let answer = client.ask(protocol, address).unwrap();
        assert_eq!(answer.name, name);
        assert_eq!(answer.client.ip().to_string(), "10.0.0.1");
        assert_eq!(answer.server.to_string(), address);
    }
}

#[test]
fn failures_have_their_own_kinds() {
    if !require_root() {
        return;
    }
    let (client, host) = two_hosts();
    let kind = |asked: io::Result<String>| asked.unwrap_err().kind();
    assert_eq!(
        kind(client.ask_tcp("10.0.0.2:81")),
        io::ErrorKind::ConnectionRefused
    );
    assert_eq!(
        kind(client.ask_udp("10.0.0.2:81")),
        io::ErrorKind::ConnectionRefused
    );
    assert_eq!(
        kind(client.ask_tcp("192.0.2.1:80")),
        io::ErrorKind::NetworkUnreachable
    );
    let drop = format!("iptables {XTABLES_WAIT} -A INPUT -p udp -j DROP");
    host.must_run(&drop.split(' ').collect::<Vec<_>>());
    assert_eq!(kind(client.ask_udp("10.0.0.2:81")), io::ErrorKind::TimedOut);
}

#[test]
fn a_namespace_has_no_way_out_and_leaves_nothing_behind() {
    if !require_root() {
        return;
    }
    let netns = Netns::new("alone");
    let path = netns.path().to_owned();
    assert!(path.exists());
    assert_eq!(
        netns.ip_json("route show table main"),
        serde_json::json!([])
    );
    let mut sleeper = netns.spawn(&["sleep", "600"]);
    drop(netns);
    assert!(!path.exists());
    assert!(
        !sleeper.wait().unwrap().success(),
        "what ran inside is killed"
    );
}

#[test]
fn a_process_joins_cgroup_namespace_and_mounts() {
    if !require_root() {
        return;
    }
    let (netns, cgroup, mounts) = (Netns::new("a"), Cgroup2::new("a"), PrivateMounts::new());
    let marker = format!("/run/marker-{}", std::process::id());
    mounts.enter(|| std::fs::write(&marker, "inside")).unwrap();
    assert!(
        !Path::new(&marker).exists(),
        "private mounts are not seen outside"
    );
    let script =
        format!("cat {marker} && cat /proc/self/cgroup && stat -fc %T /sys/fs/bpf && ip -br link");
    let join = Join::new().netns(&netns).cgroup(&cgroup).mounts(&mounts);
    let output = join.command("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.starts_with("inside"), "{text}");
    let name = cgroup.path().file_name().unwrap().to_str().unwrap();
    assert!(text.contains(&format!("0::/{name}\n")), "{text}");
    assert!(text.contains("bpf_fs") && !text.contains("eth0"), "{text}");
}

#[test]
fn a_cgroup_goes_with_its_processes() {
    if !require_root() {
        return;
    }
    let cgroup = Cgroup2::new("a");
    let path = cgroup.path().to_owned();
    let mut sleeper = Join::new()
        .cgroup(&cgroup)
        .command("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    drop(cgroup);
    assert!(!path.exists());
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn the_peer_program_asks_from_a_process_of_its_own() {
    if !require_root() {
        return;
    }
    let (client, host) = two_hosts();
    let _server = host.serve(Tcp, "10.0.0.2:80", "web");
    let asked = client.run(&[
        bin("seaway-peer").to_str().unwrap(),
        "ask",
        "tcp",
        "10.0.0.2:80",
        "2",
    ]);
    let text = String::from_utf8(asked.stdout).unwrap();
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("web 10.0.0.1:"))
            .count(),
        2
    );
    let refused = client.run(&[
        bin("seaway-peer").to_str().unwrap(),
        "ask",
        "udp",
        "10.0.0.2:81",
    ]);
    assert!(
        String::from_utf8(refused.stderr)
            .unwrap()
            .starts_with("ConnectionRefused")
    );
}

#[test]
fn a_host_name_is_the_fixtures_alone() {
    if !require_root() {
        return;
    }
    let name = |mut command: std::process::Command| {
        let output = command.arg("-n").output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let before = name(std::process::Command::new("uname"));
    let uts = uts_namespace("node-83").unwrap();
    assert_eq!(name(Join::new().namespace(uts).command("uname")), "node-83");
    assert_eq!(name(std::process::Command::new("uname")), before);
}
