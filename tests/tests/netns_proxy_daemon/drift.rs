//! What others do to our rules is noticed within seconds, undone and counted; what they
//! do to their own costs nothing. The oracles are packets and `iptables-save`.

use std::fs;
use std::io::Write as _;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use seaway_testbed::fake_api::{FakeApi, SERVICES, SLICES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{XTABLES_WAIT, require_root};
use serde_json::json;

use crate::node::{API, Daemon, Node};

/// About a second on a quiet machine.
const IN_TIME: Duration = Duration::from_secs(30);
/// Damage that follows another waits four times what the repair of that one took, seconds in
/// a build that is not optimised.
const AFTER_ANOTHER: Duration = Duration::from_mins(1);
/// What changes no size of iptables-legacy's tables is seen by a digest alone, which waits 2000
/// times what the last one took, on a busy machine as well. Less than [`Daemon::wait`] waits.
const BY_DIGEST: Duration = Duration::from_secs(115);
const METRICS: &str = "127.0.0.1:10249";

/// A node with the daemon on it, and rules of somebody else.
struct Kept {
    node: Node,
    daemon: Daemon,
    flavour: &'static str,
    rules: Vec<String>,
    _api: FakeApi,
    _web: Server,
}

impl Kept {
    fn new(flavour: &'static str, services: usize) -> Self {
        let node = Node::new();
        let web = node.netns.serve(Protocol::Tcp, "10.244.0.5:8080", "web");
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        crate::fill(&api);
        serve_ipv6(&api);
        for n in 1..services {
            let (name, ip) = (format!("s{n}"), format!("10.97.{}.{}", n / 250, n % 250));
            api.apply(SERVICES, crate::service(&name, &ip));
            api.apply(SLICES, crate::slice(&name, "10.244.0.5"));
        }
        let run = |words: &str| {
            let words = format!("iptables-{flavour} {XTABLES_WAIT} {words}");
            node.netns.must_run(&words.split(' ').collect::<Vec<_>>());
        };
        // By this chain a kubelet tells which flavour it uses.
        run("-t mangle -N KUBE-IPTABLES-HINT");
        run("-t nat -N FOREIGN");
        run("-t nat -A FOREIGN -d 192.0.2.1/32 -j RETURN");
        run("-t nat -A OUTPUT -j FOREIGN");
        run("-t filter -A INPUT -s 192.0.2.2/32 -j DROP");
        let flags = ["--cluster-cidr", "10.244.0.0/16", "--pod-network", "off"];
        let daemon = node.start_with("iptables", &flags);
        daemon.wait_said(&["Programmed all Services"]);
        daemon.wait_said(&["Using iptables", flavour]);
        let mut kept = Self {
            node,
            daemon,
            flavour,
            rules: Vec::new(),
            _api: api,
            _web: web,
        };
        kept.rules = kept.rules();
        assert!(kept.node.ask("10.96.0.1:80").contains("web"));
        kept
    }

    /// Of both families, sorted, since what is written again may come before others' rules.
    fn rules(&self) -> Vec<String> {
        let dumps = ["iptables", "ip6tables"].map(|program| {
            let save = format!("{program}-{}-save", self.flavour);
            self.node.netns.must_run(&[save])
        });
        let lines = dumps
            .iter()
            .flat_map(|dump| dump.lines())
            .filter(|line| line.starts_with("-A") || line.ends_with("- [0:0]"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// The first rule that has this in it, as one would delete it.
    fn rule(&self, part: &str) -> String {
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.starts_with("-A") && rule.contains(part));
        rule.unwrap_or_else(|| panic!("{part} is not in {:#?}", self.rules))[3..].to_owned()
    }

    fn damage(&self, command: &str) {
        self.node.netns.must_run(&["sh", "-c", command]);
    }

    fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.node.get_from(METRICS, "/metrics").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |number| number.trim().parse().unwrap())
    }

    fn repaired(&self) -> u64 {
        self.metric("seaway_service_proxy_drift_repaired_total")
    }

    /// Time on a CPU, also of threads and children that have ended.
    fn cpu(&self) -> Duration {
        let pid = self.daemon.pid();
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).unwrap()));
        let own = Duration::from(clock.unwrap().now().unwrap());
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // cutime and cstime, in hundredths of a second.
        let children: u64 = [13, 14]
            .map(|n| fields[n].parse::<u64>().unwrap())
            .iter()
            .sum();
        own + Duration::from_millis(10 * children)
    }

    /// Does something to the rules and waits until they are as before and answer.
    #[track_caller]
    fn repairs(&self, command: &str) {
        self.repairs_within(IN_TIME, command);
    }

    #[track_caller]
    fn repairs_within(&self, limit: Duration, command: &str) {
        let (before, started) = (self.repaired(), Instant::now());
        self.damage(command);
        // Whoever flushes everything takes his own along; else they are as they were. Ours may
        // be back before two programs have shown them: that they were lost is what is counted.
        let others = |rules: &[String]| rules.len() - ours(rules).len();
        let left = others(&self.rules());
        let is_repaired = || ours(&self.rules()) == ours(&self.rules);
        self.daemon.wait(command, is_repaired);
        assert_eq!(others(&self.rules()), left, "{command}");
        let took = started.elapsed();
        assert!(took < limit, "{command}: {took:?}");
        assert!(self.node.ask("10.96.0.1:80").contains("web"), "{command}");
        self.daemon
            .wait("the count", || self.repaired() == before + 1);
    }
}

/// One Service more, of which only rules are seen.
fn serve_ipv6(api: &FakeApi) {
    let mut service = crate::service("six", "fd00:96::1");
    service["spec"]["ipFamilies"] = json!(["IPv6"]);
    let mut slice = crate::slice("six", "fd00:244::5");
    slice["addressType"] = json!("IPv6");
    api.apply(SERVICES, service);
    api.apply(SLICES, slice);
}

/// Only our own are compared; what a flush takes from others is not ours to bring back.
fn ours(rules: &[String]) -> Vec<&String> {
    rules
        .iter()
        .filter(|rule| rule.contains("SEAWAY-"))
        .collect()
}

fn everything_is_repaired(flavour: &'static str, all: &str) {
    let kept = Kept::new(flavour, 3);
    let ipt = format!("iptables-{flavour} {XTABLES_WAIT}");
    let dnat = kept.rule("-j DNAT --to-destination 10.244.0.5:8080");
    kept.repairs(&format!("{ipt} -t nat -D {dnat}"));
    // Of the same size, so that no number of rules or bytes tells.
    let (chain, rest) = dnat.split_once(' ').unwrap();
    let other = rest.replace("10.244.0.5:8080", "10.244.0.6:8080");
    let in_time = if flavour == "legacy" {
        BY_DIGEST
    } else {
        IN_TIME
    };
    kept.repairs_within(in_time, &format!("{ipt} -t nat -R {chain} 1 {other}"));
    kept.repairs(&format!("{ipt} -t nat -F SEAWAY-ADDRESSES"));
    let jump = format!("{ipt} -t nat -S OUTPUT | grep SEAWAY | head -1 | sed s/^-A/-D/");
    kept.repairs(&format!("eval {ipt} -t nat $({jump})"));
    kept.repairs(&format!("{ipt} -t filter -F SEAWAY-PROXY-FORWARD"));
    let dnat = kept.rule("-j DNAT --to-destination [fd00:244::5]:8080");
    let of_ipv6 = format!("ip6tables-{flavour} {XTABLES_WAIT}");
    kept.repairs(&format!("{of_ipv6} -t nat -D {dnat}"));
    assert_eq!(
        kept.daemon.said(&["WARN", "Repaired what somebody else"]),
        6
    );
    kept.repairs(all);
    assert_eq!(kept.metric("seaway_service_proxy_drift_looks_total"), 7);
    let status = kept.node.command("status").output().unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("drift repaired: 7, last at "), "{text}");
}

#[test]
fn case_244_what_others_do_to_rules_of_nft_is_undone_and_counted() {
    if require_root() {
        everything_is_repaired("nft", "nft flush ruleset");
    }
}

#[test]
fn case_244_what_others_do_to_rules_of_legacy_is_undone_and_counted() {
    if require_root() {
        // One program, which without `--noflush` takes chains along: between several that wait
        // for a lock there would be time for a repair of a part.
        let nothing = r"*nat\nCOMMIT\n*filter\nCOMMIT\n";
        let flush = format!("printf '{nothing}' | iptables-legacy-restore {XTABLES_WAIT}");
        everything_is_repaired("legacy", &flush);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "what is measured is what a time costs"
)]
fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// The share of a CPU that the daemon takes while something is done.
fn share(kept: &Kept, meanwhile: impl FnOnce()) -> f64 {
    let (before, started) = (kept.cpu(), Instant::now());
    meanwhile();
    let took = kept.cpu().saturating_sub(before);
    took.as_secs_f64() / started.elapsed().as_secs_f64()
}

/// `nft`, which takes one line as one transaction.
fn nft(kept: &Kept) -> (std::process::Child, ChildStdin) {
    let mut command = kept.node.netns.command("nft");
    command
        .arg("-i")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

/// Lets `line` make a hundred transactions a second, for some seconds. After a stall it does not
/// catch up: that would be a burst.
fn storm(kept: &Kept, line: &str) {
    const SECONDS: u32 = 4;
    let (mut child, mut stdin) = nft(kept);
    let mut next = Instant::now();
    for _ in 0..100 * SECONDS {
        stdin.write_all(line.as_bytes()).unwrap();
        next = (next + Duration::from_millis(10)).max(Instant::now());
        pass(next.saturating_duration_since(Instant::now()));
    }
    drop(stdin);
    child.wait().unwrap();
}

#[test]
fn a_program_that_rewrites_its_rules_all_day_costs_little() {
    if !require_root() {
        return;
    }
    let kept = Kept::new("nft", 3);
    let mut said = Vec::new();
    let looks = || kept.metric("seaway_service_proxy_drift_looks_total");
    let own = "add table ip storm; add chain ip storm c; delete table ip storm\n";
    let of_iptables = "add rule ip nat FOREIGN counter; flush chain ip nat FOREIGN\n";
    for line in [own, of_iptables] {
        let share = share(&kept, || storm(&kept, line));
        writeln!(said, "{:.2} % of a CPU for {line}", share * 100.0).unwrap();
        assert!(share < 0.15, "{line}: {share}");
        // One may be: what a stalled daemon has not taken from its socket in time is lost, and
        // could have been about our rules.
        assert!(looks() <= 1, "{line}: {}", looks());
    }
    // A fight over our own rules is not fought at any price.
    let ours = "add rule ip nat SEAWAY-SERVICES counter\n";
    let (before, started) = (looks(), Instant::now());
    let share = share(&kept, || storm(&kept, ours));
    // A second apart; what is stalled takes longer.
    let (found, most) = (looks() - before, started.elapsed().as_secs() + 2);
    assert!((1..=most).contains(&found), "{found} of {most}");
    writeln!(said, "{:.2} % of a CPU for {ours}", share * 100.0).unwrap();
    assert!(share < 0.5, "{share}");
    std::io::stderr().write_all(&said).unwrap();
    kept.daemon.wait("peace", || {
        kept.rules().iter().all(|r| r != "-A SEAWAY-SERVICES")
    });
}

#[test]
fn an_idle_daemon_with_its_watch_takes_no_cpu() {
    if !require_root() {
        return;
    }
    let seconds = std::env::var("SEAWAY_IDLE_SECONDS");
    let seconds = seconds.map_or(5, |seconds| seconds.parse().unwrap());
    let mut said = Vec::new();
    for flavour in ["nft", "legacy"] {
        let kept = Kept::new(flavour, 1000);
        pass(Duration::from_secs(2));
        // What the start left to do may come into the first of them.
        let mut shares = (0..10).map(|_| share(&kept, || pass(Duration::from_secs(seconds))));
        let least = shares.find(|share| *share < 0.001);
        // The issue's number, in a build that is not optimised.
        let least = least.unwrap_or_else(|| panic!("{flavour}: takes CPU at idle"));
        writeln!(said, "{flavour}: {:.4} % of a CPU", least * 100.0).unwrap();
    }
    std::io::stderr().write_all(&said).unwrap();
}

/// What a large write of ours does is not listened to; what comes after it is.
#[test]
fn a_flush_of_many_services_is_undone_once_and_the_next_one_too() {
    if !require_root() {
        return;
    }
    let kept = Kept::new("nft", 600);
    for _ in 0..2 {
        kept.repairs_within(AFTER_ANOTHER, "nft flush ruleset");
    }
    kept.repairs_within(AFTER_ANOTHER, "iptables-nft -t nat -F SEAWAY-ADDRESSES");
    assert_eq!(kept.metric("seaway_service_proxy_drift_looks_total"), 3);
}
