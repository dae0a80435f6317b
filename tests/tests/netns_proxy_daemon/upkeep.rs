//! What others flush comes back, and what dead pods leave goes, while the daemon runs. The
//! oracles are packets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use seaway_testbed::peer::Protocol::Tcp;
use seaway_testbed::peer::Server;
use seaway_testbed::{Netns, bin, connect, wait_until, write_program};
use serde_json::{Value, json};

use crate::node::{API, CONF, Daemon, Node};
use crate::pair::api_node;
use seaway_testbed::fake_api::{FakeApi, NODES};

#[path = "upkeep/churn.rs"]
mod churn;
#[path = "upkeep/flushed.rs"]
mod flushed;
#[path = "upkeep/networks.rs"]
mod networks;
#[path = "upkeep/passage.rs"]
mod passage;

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
    write_program(&wrapper, &script);
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
