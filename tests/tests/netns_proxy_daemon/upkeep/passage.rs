//! What lets packets come to pods, FORWARD and routes, comes back.

use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, XTABLES_WAIT, require_root, wait_until};

use super::{IN_TIME, Kept};

#[test]
fn case_64_forward_lets_pods_through_again_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    kept.add("a", &a, None);
    let to = format!("{}:80", kept.add("b", &b, None));
    let _server = b.serve(Tcp, "0.0.0.0:80", "b");
    let run = |words: &[&str]| kept.node.netns.must_run(words);
    for words in [
        &["iptables-nft", "-P", "FORWARD", "DROP"][..],
        &["iptables-nft", "-F", "FORWARD"],
    ] {
        run(words);
        let since = Instant::now();
        let accepts = || run(&["iptables-nft", "-S", "FORWARD"]).contains("seaway: to pods");
        kept.within(since, "the accepts", accepts);
        assert_eq!(a.ask_tcp(&to).unwrap(), "b");
        assert!(since.elapsed() < IN_TIME);
    }
    // It is counted when the plugin has ended, which is after it has written.
    let counted = || kept.metric("seaway_cni_repairs_total{what=\"forward\"}") >= 2;
    kept.daemon.wait("both repairs in the metric", counted);

    // The other flavour notifies nobody, and is looked at now and then once it is in use.
    let policy = ["iptables-legacy", XTABLES_WAIT, "-P", "FORWARD", "DROP"];
    let flush = ["iptables-legacy", XTABLES_WAIT, "-F", "FORWARD"];
    let show = ["iptables-legacy", XTABLES_WAIT, "-S", "FORWARD"];
    let has_legacy = kept.node.netns.run(&policy).status.success();
    if has_legacy {
        for words in [&policy[..], &flush[..]] {
            run(words);
            let accepts = || run(&show).contains("seaway: to pods");
            kept.daemon.wait("the accepts of iptables-legacy", accepts);
            assert_eq!(a.ask_tcp(&to).unwrap(), "b");
        }
    }
    assert!(kept.daemon.terminate().success());
    kept.node.cleanup();
    let both = ["iptables-nft", "iptables-legacy"];
    for program in &both[..=usize::from(has_legacy)] {
        let words = [*program, XTABLES_WAIT, "-S", "FORWARD"];
        let left = kept.node.netns.must_run(&words);
        assert_eq!(left, "-P FORWARD DROP\n", "{program}");
    }
}

#[test]
fn flushed_routes_to_pods_come_back_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let (a, b) = (Netns::new("a"), Netns::new("b"));
    kept.add("a", &a, None);
    let to = format!("{}:80", kept.add("b", &b, None));
    let _server = b.serve(Tcp, "0.0.0.0:80", "b");
    assert_eq!(a.ask_tcp(&to).unwrap(), "b");
    let links = kept.node.netns.ip_json("-d link show type veth");
    let names = links.as_array().unwrap().iter();
    let mut names = names.filter_map(|link| link["ifname"].as_str());
    let name = names.find(|name| name.starts_with("sw")).unwrap();
    let (down, up) = (
        format!("link set {name} down"),
        format!("link set {name} up"),
    );
    for words in [&["route flush proto 83"][..], &[&down, &up], &[&down]] {
        for words in words {
            kept.node.netns.ip(words);
        }
        let since = Instant::now();
        let answers = || a.ask_tcp(&to).is_ok_and(|name| name == "b");
        kept.within(since, &format!("pods after {words:?}"), answers);
        assert!(since.elapsed() < IN_TIME, "{:?}", since.elapsed());
    }
    let counted = || kept.metric("seaway_cni_repairs_total{what=\"routes\"}") >= 3;
    kept.daemon.wait("the repairs in the metric", counted);

    // A pod that comes and goes is no loss.
    let is_called_since = |before: usize| {
        let more = || {
            Ok((kept.calls("repair") > before)
                .then_some(())
                .ok_or_else(String::new))
        };
        wait_until(Duration::from_secs(1), "a repair", more).is_ok()
    };
    // One of three is enough: the sweep of each minute repairs as well, and so does a link that
    // was heard to go down and waits too long for a busy kernel to remove it. What is taken for
    // a loss is one each time.
    let is_quiet = (0..3).any(|_| {
        let quiet = || !is_called_since(kept.calls("repair"));
        kept.daemon.wait("quiet", quiet);
        let c = Netns::new("c");
        kept.add("c", &c, None);
        let before = kept.calls("repair");
        kept.del("c");
        !is_called_since(before)
    });
    assert!(is_quiet, "{}", kept.daemon.log());
}
