//! What a call asks of the kernel, as strace sees it.

use std::process::{Child, Output};

use seaway_testbed::{Netns, require_root, strace_is_missing};

use crate::node::{Node, pod_path, start, text};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// The plugin under strace, which follows it into threads and programs only with `-f`.
pub(crate) fn traced(node: &Node, verb: &str, id: &str, pod: &str, options: &[&str]) -> Output {
    let call = start_traced(node, verb, id, pod, options);
    call.wait_with_output().unwrap()
}

pub(crate) fn start_traced(
    node: &Node,
    verb: &str,
    id: &str,
    pod: &str,
    options: &[&str],
) -> Child {
    let plain = node.command(verb, id, pod);
    let mut command = node.netns.command("strace");
    command.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.args(options);
    command.arg(&node.program);
    start(command, &node.conf)
}

/// The lines that strace prints for these system calls, each with its paths.
pub(crate) fn lines(node: &Node, verb: &str, id: &str, pod: &str, calls: &str) -> Vec<String> {
    let log = node.dir.path().join("trace");
    let (set, file) = (format!("trace={calls}"), log.to_str().unwrap());
    let options = ["-f", "-y", "-v", "-s", "9999", "-e", &set, "-o", file];
    let output = traced(node, verb, id, pod, &options);
    assert!(output.status.success(), "{}", text(&output));
    let log = std::fs::read_to_string(&log).unwrap();
    log.lines().map(str::to_owned).collect()
}

/// One netlink message as strace prints its header.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    kind: &'a str,
    flags: &'a str,
    length: &'a str,
}

impl<'a> Sent<'a> {
    /// All messages of one send.
    pub(crate) fn of(line: &'a str) -> Vec<Self> {
        let messages = line.split("nlmsg_len=").skip(1);
        messages
            .map(|message| {
                let length = message.split(',').next().unwrap();
                let field = |name: &str| message.split(name).nth(1).unwrap();
                let kind = field("nlmsg_type=").split([',', ' ']).next().unwrap();
                let flags = field("nlmsg_flags=").split(',').next().unwrap();
                Self {
                    kind,
                    flags,
                    length,
                }
            })
            .collect()
    }

    /// strace knows a socket's protocol, and so names, only in its own namespace.
    pub(crate) fn asks(&self) -> bool {
        match self.kind.strip_prefix("0x") {
            // Of each four rtnetlink types the third one gets.
            Some(hex) => u32::from_str_radix(hex, 16).unwrap() & 3 == 2,
            None => self.kind.contains("_GET"),
        }
    }

    /// For other types the same bits mean "replace" and "exclusive".
    pub(crate) fn dumps(&self) -> bool {
        let some = |name| self.flags.contains(name);
        self.asks() && (some("DUMP") || some("ROOT") || some("MATCH") || some("|0x"))
    }
}

/// An address is free only when nothing has it any more: else the next pod could get it
/// beside the one that is going.
#[test]
fn case_35_the_record_goes_after_the_link() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    node.add("c1", &pod);
    let calls = "sendto,sendmsg,unlink,unlinkat";
    let all = lines(&node, "DEL", "c1", pod_path(&pod), calls);
    let link = |line: &String| {
        let of_link = |sent: &Sent<'_>| matches!(sent.kind, "RTM_DELLINK" | "0x11");
        line.contains("nlmsg_len=") && Sent::of(line).iter().any(of_link)
    };
    let record = |line: &String| line.contains("unlink") && line.contains("=c1:eth0\"");
    let links: Vec<usize> = (0..)
        .zip(&all)
        .filter(|(_, l)| link(l))
        .map(|(n, _)| n)
        .collect();
    let records: Vec<usize> = (0..)
        .zip(&all)
        .filter(|(_, l)| record(l))
        .map(|(n, _)| n)
        .collect();
    assert_eq!((links.len(), records.len()), (1, 2), "{all:#?}");
    assert!(links[0] < records[0], "{all:#?}");
}

/// Also X14 of the bug log: a device that moves waits for all CPUs.
#[test]
fn case_28_both_ends_are_born_in_place_with_one_queue() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    let all = lines(&node, "ADD", "c1", pod_path(&pod), "sendto,sendmsg");
    let (mut made, mut set) = (0, 0);
    for send in &all {
        for message in Sent::of(send) {
            match message.kind {
                "RTM_NEWLINK" | "0x10" => {
                    made += 1;
                    // strace shows the peer's part in hexadecimal.
                    let (_, peer) = send.split_once("IFLA_INFO_DATA").unwrap();
                    let netns_fd = r"\x08\x00\x1c\x00";
                    assert!(peer.contains(netns_fd), "IFLA_NET_NS_FD: {send}");
                    assert!(peer.contains(r"\x65\x74\x68\x30"), "eth0: {send}");
                }
                "RTM_SETLINK" | "0x13" => {
                    set += 1;
                    // Two headers: up, and no attribute that could move it; or no
                    // link-local address (IFLA_AF_SPEC, 16 bytes).
                    let spec = send.contains("IFLA_AF_SPEC") || send.contains(r"\x10\x00\x1a\x00");
                    let plain = message.length == "32"
                        || (message.length == "48" && spec)
                        || send.contains("IFLA_IFALIAS");
                    assert!(plain && !send.contains("NET_NS"), "{send}");
                }
                _ => {}
            }
        }
    }
    assert_eq!(made, 1, "{all:#?}");
    assert!(set >= 3, "lo, eth0 and the host's end: {all:#?}");
    for (netns, name) in [(&node.netns, "swec43057c07aa"), (&pod, "eth0")] {
        let link = &netns.ip_json(&format!("-d link show {name}"))[0];
        let queues = [&link["num_tx_queues"], &link["num_rx_queues"]];
        assert_eq!(queues, [1, 1], "whatever the number of CPUs: {link}");
    }
    node.del("c1", "");
}

#[test]
fn case_25_the_hosts_end_is_deaf_to_routers_before_it_is_up() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    node.netns.sysctl("ipv6/conf/default/accept_ra", "2");
    let all = lines(&node, "ADD", "c1", pod_path(&pod), "sendto,pwrite64");
    let at = |what: &dyn Fn(&str) -> bool| {
        let place = all.iter().position(|line| what(line));
        place.unwrap_or_else(|| panic!("{all:#?}"))
    };
    let host = "/proc/sys/net/ipv6/conf/swec43057c07aa/accept_ra";
    let deaf = at(&|l| l.contains("pwrite64(") && l.contains(host) && l.contains("\"0\""));
    let born = at(&|l| l.contains("RTM_NEWLINK"));
    let up = at(&|l| l.contains("RTM_SETLINK") && l.contains("IFF_UP"));
    assert!(born < deaf && deaf < up, "{born} {deaf} {up}");
    let pod_deaf = at(&|l| l.contains("pwrite64(") && l.contains("conf/eth0/accept_ra"));
    let pod_up = at(&|l| l.contains("nlmsg_type=0x13"));
    assert!(pod_deaf < pod_up, "{pod_deaf} {pod_up}");
    node.del("c1", "");
}

#[test]
fn settings_are_read_before_they_are_written_and_only_where_they_differ() {
    if !require_root() || strace_is_missing() {
        return;
    }
    let (node, pod) = (Node::with_ranges(&BOTH), Netns::new("pod"));
    node.netns.sysctl("ipv6/conf/default/accept_ra", "0");
    pod.sysctl("ipv6/conf/default/accept_dad", "0");
    let all = lines(&node, "ADD", "c1", pod_path(&pod), "pread64,pwrite64,write");
    let of = |call: &str, key: &str| {
        let call_of = |l: &&String| l.contains(&format!(" {call}"));
        let is = |l: &&String| call_of(l) && l.contains("/proc/sys/") && l.contains(key);
        all.iter().filter(is).count()
    };
    assert_eq!(of("write(", ""), 0, "{all:#?}");
    for right in ["swec43057c07aa/accept_ra", "eth0/accept_dad"] {
        assert!(of("pread64(", right) > 0, "{all:#?}");
        assert_eq!(of("pwrite64(", right), 0, "{all:#?}");
    }
    let wrong = "eth0/keep_addr_on_down";
    assert_eq!(of("pread64(", wrong), 1, "{all:#?}");
    assert_eq!(of("pwrite64(", wrong), 1, "{all:#?}");
    node.del("c1", "");
}
