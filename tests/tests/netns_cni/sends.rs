//! How often an ADD talks to the kernel.

use seaway_testbed::{Netns, require_root, strace_is_missing};

use crate::node::{Node, pod_path};
use crate::trace::{Sent, lines};

const BOTH: [&str; 2] = ["10.244.1.0/24", "fd00:1:2::/64"];

/// How often an ADD may have to ask for the carrier. Since Linux 6.18 the question itself makes
/// the kernel see to it; an older one does that in a job, which is waited for.
fn most_looks() -> usize {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().ok());
    let version = [numbers.next().flatten(), numbers.next().flatten()];
    if version >= [Some(6), Some(18)] {
        1
    } else {
        20
    }
}

/// The reference grants three sends. That many change something; beside them there are short
/// questions, which it does not know: one for the carrier, without which the first packet is
/// lost, and one in each family for iptables-nft's FORWARD, whose policy Docker sets to drop. So
/// it is five sends with one family, and six with both. Nothing is listed where there is no such
/// chain, or where it accepts and has no rules; where it has some, one list of them comes on top
/// in each family, since the last one may drop.
#[test]
fn case_27_an_add_makes_three_sends_and_lists_nothing() {
    if !require_root() || strace_is_missing() {
        return;
    }
    for (ranges, has_forward) in [(1, false), (2, false), (2, true)] {
        let ranges = &BOTH[..ranges];
        let (node, pod) = (Node::with_ranges(ranges), Netns::new("pod"));
        if has_forward {
            for program in ["iptables-nft", "ip6tables-nft"] {
                node.netns.must_run(&[program, "-P", "FORWARD", "ACCEPT"]);
            }
        }
        // What a node does once is done, and there is somebody who could be listed.
        let first = Netns::new("first");
        node.add("first", &first);
        let calls = "sendto,sendmsg,sendmmsg,write";
        let all = lines(&node, "ADD", "c1", pod_path(&pod), calls);
        let sends: Vec<&String> = all.iter().filter(|l| l.contains("nlmsg_len=")).collect();
        let mut changes = 0;
        for send in &sends {
            let messages = Sent::of(send);
            assert!(!messages.iter().any(Sent::dumps), "{send}");
            changes += usize::from(!messages.iter().all(Sent::asks));
        }
        assert_eq!(
            changes, 3,
            "the pair, its host's end, its pod's: {sends:#?}"
        );
        let asked = |what: &str| sends.iter().filter(|l| l.contains(what)).count();
        let (carrier, forward) = (asked("RTM_GETLINK"), asked("NFT_MSG_GETCHAIN"));
        assert!((1..=most_looks()).contains(&carrier), "{sends:#?}");
        assert_eq!(forward, ranges.len(), "{sends:#?}");
        assert_eq!(sends.len(), changes + carrier + forward, "{sends:#?}");
        node.del("c1", "");
    }
}
