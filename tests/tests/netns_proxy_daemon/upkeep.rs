//! What others flush comes back, and what dead pods leave goes, while the daemon runs. The
//! oracles are packets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::peer::Server;
use seaway_testbed::{Netns, bin, connect, require_root, short_or_long, wait_until};
use serde_json::{Value, json};

use crate::load::pause_until;
use crate::node::{API, CONF, Daemon, Node};
use crate::pair::api_node;
use seaway_testbed::fake_api::{FakeApi, NODES};

/// A second or two, and what a busy machine adds.
const IN_TIME: Duration = Duration::from_secs(15);
const METRICS: &str = "127.0.0.1:10249";

/// A node with the daemon on it, a neighbour outside that knows no pods, and the plugin.
pub(crate) struct Kept {
    pub(crate) node: Node,
    pub(crate) daemon: Daemon,
    pub(crate) outside: Netns,
    pub(crate) api: FakeApi,
    _servers: Vec<Server>,
}

/// Where the daemon is to run, and the neighbour.
struct Place {
    node: Node,
    outside: Netns,
    servers: Vec<Server>,
}

impl Place {
    fn new() -> Self {
        let (node, outside) = (Node::new(), Netns::new("outside"));
        let ends = ("192.0.2.1/24", "192.0.2.2/24");
        connect(&node.netns, "uplink", ends.0, &outside, "far0", ends.1);
        let servers = vec![outside.serve(Tcp, "192.0.2.2:80", "outside")];
        Self {
            node,
            outside,
            servers,
        }
    }

    /// The same with IPv6.
    fn dual() -> Self {
        let mut place = Self::new();
        let node = &place.node.netns;
        node.ip("addr add fd00:30::11/64 dev eth0 nodad");
        // A way for Service addresses to be sent at all.
        node.ip("-6 route add default dev eth0");
        node.ip("addr add fd00:192::1/64 dev uplink nodad");
        place.outside.ip("addr add fd00:192::2/64 dev far0 nodad");
        let server = place.outside.serve(Tcp, "[fd00:192::2]:80", "outside");
        place.servers.push(server);
        place
    }
}

/// The plugin, with a list of the verbs that it is called with.
fn counted(node: &Node, plugin: &Path) -> PathBuf {
    let (list, plugin) = (node.path("calls"), plugin.display());
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nexec {plugin} \"$@\"\n",
        list.display()
    );
    let wrapper = node.path("seaway-cni");
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

/// The pods serve at their port 80.
pub(crate) fn mapping(host_port: u16, protocol: &str) -> Value {
    json!({"hostPort": host_port, "containerPort": 80, "protocol": protocol})
}

impl Kept {
    pub(crate) fn new(flags: &[&str]) -> Self {
        Self::with_plugin("off", &bin("seaway-cni"), flags)
    }

    /// `service_proxy` is the daemon's flag.
    pub(crate) fn with_plugin(service_proxy: &str, plugin: &Path, flags: &[&str]) -> Self {
        let api_node = crate::node("a", "172.30.0.11", "10.244.0.0/24");
        let cluster = ["--cluster-cidr", "10.244.0.0/16"];
        let flags = [&cluster[..], flags].concat();
        Self::start(Place::new(), api_node, service_proxy, plugin, &flags)
    }

    /// Of both families, with the plugin.
    pub(crate) fn dual(service_proxy: &str) -> Self {
        let ips = ["172.30.0.11", "fd00:30::11"];
        let api_node = api_node("a", &ips, &["10.244.0.0/24", "fd00:244::/64"]);
        let (plugin, cluster) = (bin("seaway-cni"), "10.244.0.0/16,fd00:244::/48");
        let flags = ["--cluster-cidr", cluster];
        Self::start(Place::dual(), api_node, service_proxy, &plugin, &flags)
    }

    fn start(
        place: Place,
        api_node: Value,
        service_proxy: &str,
        plugin: &Path,
        flags: &[&str],
    ) -> Self {
        let node = place.node;
        let api = FakeApi::start(&node.netns, API.parse().unwrap(), None);
        api.apply(NODES, api_node);
        let plugin = if plugin.exists() {
            counted(&node, plugin)
        } else {
            plugin.to_owned()
        };
        let plugin = ["--cni-bin", plugin.to_str().unwrap()];
        let daemon = node.start_with(service_proxy, &[&plugin[..], flags].concat());
        daemon.wait("the CNI conf", || node.path(CONF).exists());
        Self {
            node,
            daemon,
            outside: place.outside,
            api,
            _servers: place.servers,
        }
    }

    /// A call as a container runtime makes it, with the daemon's own conf.
    fn command(&self, verb: &str, id: &str, pod: &str) -> Command {
        let mut command = self.node.netns.command(bin("seaway-cni"));
        command.env_clear().envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", pod),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ]);
        command
    }

    fn conf(&self, mappings: &Value) -> Value {
        let list: Value = serde_json::from_slice(&fs::read(self.node.path(CONF)).unwrap()).unwrap();
        let mut conf = list["plugins"][0].clone();
        conf["name"] = list["name"].clone();
        conf["cniVersion"] = list["cniVersion"].clone();
        conf["runtimeConfig"] = json!({ "portMappings": mappings });
        conf
    }

    fn call(&self, verb: &str, id: &str, pod: &str, mappings: &Value) -> Output {
        let file = self.node.path(&format!("conf-{id}"));
        fs::write(&file, self.conf(mappings).to_string()).unwrap();
        let mut command = self.command(verb, id, pod);
        command.stdin(fs::File::open(file).unwrap());
        command.stdout(Stdio::piped()).output().unwrap()
    }

    /// The pod's address.
    #[track_caller]
    pub(crate) fn add(&self, id: &str, pod: &Netns, host_port: Option<u16>) -> String {
        let mapping = host_port.map(|port| json!([mapping(port, "tcp")]));
        self.add_with(id, pod, &json!(mapping)).swap_remove(0)
    }

    /// All of the pod's addresses.
    #[track_caller]
    pub(crate) fn add_with(&self, id: &str, pod: &Netns, mappings: &Value) -> Vec<String> {
        let output = self.call("ADD", id, pod.path().to_str().unwrap(), mappings);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        let result: Value = serde_json::from_str(&text).unwrap();
        let ips = result["ips"].as_array().unwrap().iter();
        let addresses = ips.map(|ip| ip["address"].as_str().unwrap());
        let addresses = addresses.map(|address| address.split('/').next().unwrap().to_owned());
        addresses.collect()
    }

    #[track_caller]
    pub(crate) fn del(&self, id: &str) {
        assert!(self.call("DEL", id, "", &Value::Null).status.success());
    }

    fn nft(&self, words: &str) -> String {
        let words: Vec<&str> = std::iter::once("nft").chain(words.split(' ')).collect();
        self.node.netns.must_run(&words)
    }

    fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.node.get_from(METRICS, "/metrics").unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn calls(&self, verb: &str) -> usize {
        let text = fs::read_to_string(self.node.path("calls")).unwrap_or_default();
        text.lines().filter(|line| *line == verb).count()
    }

    #[track_caller]
    fn within(&self, since: Instant, what: &str, mut look: impl FnMut() -> bool) {
        let left = IN_TIME.saturating_sub(since.elapsed());
        let look = || Ok(if look() { Ok(()) } else { Err(String::new()) });
        wait_until(left, what, look).unwrap_or_else(|e| panic!("{e}\n{}", self.daemon.log()));
    }

    /// From outside to a hostPort, and from a pod to the outside under the node's address.
    #[track_caller]
    pub(crate) fn both_answer(&self, pod: &Netns, since: Instant) {
        let table = || self.nft("list tables").contains("table ip seaway");
        self.within(since, "our table", table);
        let rules = || {
            self.nft("list table ip seaway")
                .contains("chain egress-masquerade")
        };
        self.within(since, "the masquerade", rules);
        let port = || {
            self.outside
                .ask_tcp("192.0.2.1:8080")
                .is_ok_and(|name| name == "web")
        };
        self.within(since, "the hostPort", port);
        let seen = pod.ask(Tcp, "192.0.2.2:80").unwrap().client;
        assert_eq!(seen.ip().to_string(), "192.0.2.1");
        assert!(since.elapsed() < IN_TIME, "{:?}", since.elapsed());
    }

    /// The same over IPv6, on a node of both families.
    #[track_caller]
    fn both_answer_over_ipv6(&self, pod: &Netns, since: Instant) {
        let port = || {
            let answer = self.outside.ask_tcp("[fd00:192::1]:8080");
            answer.is_ok_and(|name| name == "web")
        };
        self.within(since, "the hostPort over IPv6", port);
        let masquerade = || {
            let answer = pod.ask(Tcp, "[fd00:192::2]:80");
            answer.is_ok_and(|answer| answer.client.ip().to_string() == "fd00:192::1")
        };
        self.within(since, "the masquerade of IPv6", masquerade);
    }
}

#[test]
fn case_64_a_flushed_ruleset_comes_back_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::new(&[]);
    let web = Netns::new("web");
    let _server = web.serve(Tcp, "0.0.0.0:80", "web");
    kept.add("web", &web, Some(8080));
    kept.both_answer(&web, Instant::now());
    kept.daemon
        .wait("the first repair", || kept.calls("repair") > 0);

    kept.nft("flush ruleset");
    assert!(kept.outside.ask_tcp("192.0.2.1:8080").is_err() || kept.calls("repair") > 1);
    kept.both_answer(&web, Instant::now());
    let repaired = |what: &str| {
        let name = format!("seaway_cni_repairs_total{{what=\"{what}\"}}");
        kept.metric(&name)
    };
    kept.daemon.wait("the count", || repaired("hostPorts") == 1);

    // As firewalld reloads: everything is flushed, its own tables are made anew.
    kept.nft("add table inet firewalld");
    let reload = "flush ruleset; add table inet firewalld; \
        add chain inet firewalld filter_FORWARD { type filter hook forward priority 10; }; \
        add rule inet firewalld filter_FORWARD ct state established,related accept; \
        add rule inet firewalld filter_FORWARD meta mark 0x17 drop";
    kept.node.netns.must_run(&["nft", reload]);
    let reloaded = Instant::now();
    let theirs = || kept.nft("-a list table inet firewalld");
    let before = theirs();
    kept.both_answer(&web, reloaded);
    assert_eq!(theirs(), before, "foreign rules are untouched");

    // Each loss costs a repair and one that finds nothing to do; what we write ourselves
    // costs none.
    kept.daemon
        .wait("the repairs", || kept.calls("repair") >= 4);
    let other = Netns::new("other");
    kept.add("other", &other, Some(8081));
    kept.nft("flush ruleset");
    kept.both_answer(&web, Instant::now());
    assert!(kept.calls("repair") <= 9, "{}", kept.calls("repair"));
    kept.del("other");
    kept.del("web");
    // A pod that goes takes its ports along, and they stay away.
    kept.daemon.wait("a look", || kept.calls("repair") >= 6);
    assert!(!kept.nft("list table ip seaway").contains("8080"));
    assert_eq!(kept.metric("seaway_cni_upkeep_failures_total"), 0);
    assert_eq!(repaired("hostPorts"), 3);
    // One that is flushed before it has been seen once is put back, and not counted.
    assert!(
        (1..=3).contains(&repaired("masquerade")),
        "{}",
        kept.daemon.log()
    );
}

#[test]
fn case_64_what_is_flushed_of_ipv6_comes_back_while_the_daemon_runs() {
    if !require_root() {
        return;
    }
    let kept = Kept::dual("off");
    let web = Netns::new("web");
    let _server = web.serve(Tcp, "[::]:80", "web");
    kept.add("web", &web, Some(8080));
    let answer = || {
        let since = Instant::now();
        kept.both_answer(&web, since);
        kept.both_answer_over_ipv6(&web, since);
    };
    answer();
    kept.daemon
        .wait("the first repair", || kept.calls("repair") > 0);
    // The first line of the table has its number, which is another one when it is made anew.
    let table = || {
        let listed = kept.nft("-a list table ip6 seaway");
        listed.lines().next().map(str::to_owned)
    };
    // The second time it is IPv6's alone.
    for flush in ["flush ruleset", "delete table ip6 seaway"] {
        let before = table();
        kept.nft(flush);
        answer();
        assert_ne!(table(), before, "{flush}: {}", kept.daemon.log());
    }
    assert_eq!(kept.metric("seaway_cni_upkeep_failures_total"), 0);
    kept.del("web");
    assert!(kept.outside.ask_tcp("[fd00:192::1]:8080").is_err());
}

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
    let legacy = &["iptables-legacy", "-P", "FORWARD", "DROP"];
    let has_legacy = kept.node.netns.run(legacy).status.success();
    if has_legacy {
        for words in [&legacy[..], &["iptables-legacy", "-F", "FORWARD"]] {
            run(words);
            let accepts = || run(&["iptables-legacy", "-S", "FORWARD"]).contains("seaway: to pods");
            kept.daemon.wait("the accepts of iptables-legacy", accepts);
            assert_eq!(a.ask_tcp(&to).unwrap(), "b");
        }
    }
    assert!(kept.daemon.terminate().success());
    kept.node.cleanup();
    let both = ["iptables-nft", "iptables-legacy"];
    for program in &both[..=usize::from(has_legacy)] {
        let left = kept.node.netns.must_run(&[program, "-S", "FORWARD"]);
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
    let is_called = || {
        let before = kept.calls("repair");
        let more = || {
            Ok((kept.calls("repair") > before)
                .then_some(())
                .ok_or_else(String::new))
        };
        wait_until(Duration::from_secs(1), "a repair", more).is_ok()
    };
    kept.daemon.wait("quiet", || !is_called());
    let c = Netns::new("c");
    kept.add("c", &c, None);
    kept.del("c");
    assert!(!is_called(), "{}", kept.daemon.log());
}

#[test]
fn case_64_without_the_plugin_the_masquerade_comes_back_all_the_same() {
    if !require_root() {
        return;
    }
    let absent = Path::new("/nonexistent/seaway-cni");
    let kept = Kept::with_plugin("off", absent, &["--sweep-interval", "1"]);
    let rules = || kept.nft("list ruleset").contains("chain egress-masquerade");
    kept.daemon.wait("the masquerade", rules);
    kept.daemon
        .wait_said(&["Leaving hostPorts", "/nonexistent/seaway-cni"]);
    for _ in 0..2 {
        kept.nft("flush ruleset");
        kept.within(Instant::now(), "the masquerade", rules);
    }
    assert_eq!(kept.daemon.said(&["Leaving hostPorts"]), 1);
    assert_eq!(
        kept.daemon.said(&["WARN", "upkeep"]),
        0,
        "{}",
        kept.daemon.log()
    );
}

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
