//! Pods that came and went, most deleted and some dead without a word, leave nothing.

use std::fs;
use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::{Netns, require_root, short_or_long};

use super::Kept;
use crate::load::pause_until;

/// What grows with the number of pods that have come and gone, if something leaks.
#[derive(Debug, PartialEq)]
struct Baseline {
    links: usize,
    routes: String,
    rules: usize,
    records: usize,
}

impl Kept {
    fn baseline(&self) -> Baseline {
        let records = fs::read_dir(self.node.path("run/cni/seaway")).into_iter();
        let boots = records.flatten().flatten().map(|entry| entry.path());
        let files = boots.filter_map(|dir| fs::read_dir(dir).ok()).flatten();
        Baseline {
            links: self.node.netns.ip_json("link").as_array().unwrap().len(),
            routes: self.node.routes(),
            rules: self.nft("list ruleset").lines().count(),
            records: files
                .flatten()
                .filter(|file| file.file_name().to_string_lossy().contains('='))
                .count(),
        }
    }

    /// Open files, and resident memory in KiB.
    fn weight(&self) -> (usize, u64) {
        let proc = format!("/proc/{}", self.daemon.pid());
        let files = fs::read_dir(format!("{proc}/fd")).unwrap().count();
        let status = fs::read_to_string(format!("{proc}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let words = line.unwrap().split_whitespace().nth(1);
        (files, words.unwrap().parse().unwrap())
    }

    /// Pods come; most are deleted, one dies without a word.
    fn churn(&self, round: u16) {
        let pods: Vec<Netns> = (0..10).map(|_| Netns::new("pod")).collect();
        for (n, pod) in (0u16..).zip(&pods) {
            // A dead pod has its port until it is swept.
            let port = if n == 0 { 8200 + round } else { 8100 + n };
            self.add(&format!("c{round}-{n}"), pod, Some(port));
        }
        for n in 1..10 {
            self.del(&format!("c{round}-{n}"));
        }
    }
}

/// A hundred pods in seconds; with `SEAWAY_LONG` three hundred in ten minutes.
#[test]
fn case_70_hundreds_of_pods_that_came_and_went_leave_nothing() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&["--sweep-interval", "1"]);
    let live = Netns::new("live");
    let _server = live.serve(Tcp, "0.0.0.0:80", "web");
    kept.add("live", &live, Some(8080));
    kept.churn(0);
    let is = |wanted: &Baseline| kept.baseline() == *wanted;
    kept.daemon.wait("the first dead pod to be swept", || {
        kept.metric("seaway_cni_swept_total{what=\"attachment\"}") == 1
    });
    let (baseline, (files, memory)) = (kept.baseline(), kept.weight());
    let rounds: u16 = short_or_long(10, 30);
    let (started, pace) = (
        Instant::now(),
        short_or_long(Duration::ZERO, Duration::from_secs(20)),
    );
    for round in 1..rounds {
        pause_until(started + pace * u32::from(round));
        kept.churn(round);
    }
    kept.daemon
        .wait("everything to be as it was", || is(&baseline));
    kept.daemon.wait("the count of the dead", || {
        kept.metric("seaway_cni_swept_total{what=\"attachment\"}") == u64::from(rounds)
    });
    // A call of the plugin under way has pipes open, and so has a question for a metric.
    kept.daemon
        .wait("as few open files", || kept.weight().0 <= files);
    let now = kept.weight().1;
    assert!(now <= memory + 4096, "{memory} KiB, now {now}");
    kept.both_answer(&live, Instant::now());
}
