//! Two nodes with a daemon each, a pod on each, and a fabric between them.
//!
//! ```text
//!  pod 10.244.0.5 ─ a 172.30.0.11 ─┐
//!                                  ├─ fabric (bridge)
//!  pod 10.244.1.5 ─ b 172.30.0.12 ─┘
//! ```
//! The same in IPv6: pods fd00:244:0:N::5, nodes fd00:30::1N. The nodes know each other's
//! addresses only; what leads to pods is made by the daemons.

use serde_json::{Value, json};

use crate::node::{API, CONF, Daemon, Node};
use seaway_testbed::fake_api::{FakeApi, NODES};
use seaway_testbed::peer::{Protocol, Server};
use seaway_testbed::{Netns, bin, connect};

const NAMES: [&str; 2] = ["a", "b"];

/// One of the two.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) daemon: Daemon,
    pub(crate) pod: Netns,
    api: FakeApi,
    _servers: Vec<Server>,
}

pub(crate) struct Pair {
    pub(crate) members: Vec<Member>,
    pub(crate) fabric: Netns,
}

/// As the API has it.
pub(crate) fn api_node(name: &str, ips: &[&str], cidrs: &[&str]) -> Value {
    let address = |ip: &&str| json!({ "type": "InternalIP", "address": ip });
    let addresses: Vec<Value> = ips.iter().map(address).collect();
    json!({
        "metadata": { "name": name },
        "spec": { "podCIDR": cidrs[0], "podCIDRs": cidrs },
        "status": { "addresses": addresses },
    })
}

/// Node `place`, with both families' addresses and ranges.
fn both_families(place: usize) -> Value {
    let ips = [
        format!("172.30.0.{}", 11 + place),
        format!("fd00:30::{}", 11 + place),
    ];
    let cidrs = [
        format!("10.244.{place}.0/24"),
        format!("fd00:244:0:{place}::/64"),
    ];
    api_node(
        NAMES[place],
        &ips.each_ref().map(String::as_str),
        &cidrs.each_ref().map(String::as_str),
    )
}

/// A new port of the fabric for `netns`, as its eth0.
pub(crate) fn plug(fabric: &Netns, netns: &Netns, addresses: &[String]) {
    let port = format!("p{}", addresses[0].split(['.', '/']).nth(3).unwrap());
    let name = netns.name();
    fabric.ip(&format!(
        "link add {port} type veth peer name eth0 netns {name}"
    ));
    fabric.ip(&format!("link set {port} master br0 up"));
    for address in addresses {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        netns.ip(&format!("addr add {address} dev eth0 {nodad}"));
    }
    netns.ip("link set eth0 up");
}

/// Attached as the CNI plugin does it.
fn attach_pod(netns: &Netns, place: usize) -> Netns {
    let pod = Netns::new("pod");
    let (v4, v6) = (
        format!("10.244.{place}.5"),
        format!("fd00:244:0:{place}::5"),
    );
    connect(
        netns,
        "swtest",
        "169.254.0.1/32",
        &pod,
        "eth0",
        &format!("{v4}/32"),
    );
    netns.ip("addr del 169.254.0.1/32 dev swtest");
    pod.ip(&format!("addr add {v6}/128 dev eth0 nodad"));
    let mac = netns.ip_json("link show dev swtest")[0]["address"].clone();
    for (ip, gateway) in [(&v4, "169.254.1.1"), (&v6, "fe80::1")] {
        netns.ip(&format!("route add {ip} dev swtest proto 83"));
        let mac = mac.as_str().unwrap();
        pod.ip(&format!(
            "neigh add {gateway} dev eth0 lladdr {mac} nud permanent"
        ));
    }
    pod.ip("route add 169.254.1.1 dev eth0 scope link");
    pod.ip("route add default via 169.254.1.1 dev eth0");
    pod.ip("route add default via fe80::1 dev eth0");
    pod
}

impl Pair {
    /// Of IPv4 alone. Every flag is for both daemons.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_behind(flags, |_| {})
    }

    /// `prepare` has the fabric before any daemon starts.
    pub(crate) fn start_behind(flags: &[&str], prepare: impl Fn(&Netns)) -> Self {
        let nodes = [
            api_node("a", &["172.30.0.11"], &["10.244.0.0/24"]),
            api_node("b", &["172.30.0.12"], &["10.244.1.0/24"]),
        ];
        let flags = [&["--cluster-cidr", "10.244.0.0/16"], flags].concat();
        Self::with(&nodes, &flags, prepare, |_, _, _| {})
    }

    /// Of both families.
    pub(crate) fn start_dual(flags: &[&str]) -> Self {
        let cluster = ["--cluster-cidr", "10.244.0.0/16,fd00:244::/48"];
        let nodes = [both_families(0), both_families(1)];
        Self::with(&nodes, &[&cluster, flags].concat(), |_| {}, |_, _, _| {})
    }

    /// As the API has `nodes`. `prepare` has the fabric before there are nodes, `wire` the
    /// fabric, each node and its place before the daemon starts.
    pub(crate) fn with(
        nodes: &[Value],
        flags: &[&str],
        prepare: impl Fn(&Netns),
        wire: impl Fn(&Netns, &Netns, usize),
    ) -> Self {
        let fabric = Netns::new("fabric");
        fabric.ip("link add br0 type bridge");
        fabric.ip("link set br0 up");
        prepare(&fabric);
        let members = (0..NAMES.len()).map(|place| {
            let netns = Netns::new(NAMES[place]);
            let (v4, v6) = (
                format!("172.30.0.{}/24", 11 + place),
                format!("fd00:30::{}/64", 11 + place),
            );
            plug(&fabric, &netns, &[v4, v6]);
            wire(&fabric, &netns, place);
            let pod = attach_pod(&netns, place);
            let servers = [
                format!("10.244.{place}.5:80"),
                format!("[fd00:244:0:{place}::5]:80"),
            ];
            let servers = servers
                .map(|at| pod.serve(Protocol::Tcp, &at, NAMES[place]))
                .into();
            let api = FakeApi::start(&netns, API.parse().unwrap(), None);
            for node in nodes {
                api.apply(NODES, node.clone());
            }
            let node = Node::of(netns);
            let daemon = node.start_as(NAMES[place], "off", flags);
            Member {
                node,
                daemon,
                pod,
                api,
                _servers: servers,
            }
        });
        let members = members.collect();
        let pair = Self { members, fabric };
        for member in &pair.members {
            member
                .daemon
                .wait("the CNI conf", || member.node.path(CONF).exists());
        }
        pair
    }

    pub(crate) fn a(&self) -> &Member {
        &self.members[0]
    }

    /// Kills a's daemon and starts it again, with an empty log.
    pub(crate) fn restart_a(&mut self, flags: &[&str]) {
        let a = &mut self.members[0];
        a.daemon.signal(nix::sys::signal::Signal::SIGKILL);
        while a.daemon.lives() {}
        std::fs::remove_file(a.node.path("log")).unwrap();
        let flags = [&["--cluster-cidr", "10.244.0.0/16"], flags].concat();
        a.daemon = a.node.start_as("a", "off", &flags);
    }

    pub(crate) fn b(&self) -> &Member {
        &self.members[1]
    }

    /// On both nodes' API servers.
    pub(crate) fn apply(&self, node: &Value) {
        for member in &self.members {
            member.api.apply(NODES, node.clone());
        }
    }

    /// Both logs, for failures.
    pub(crate) fn logs(&self) -> String {
        let logs = self.members.iter().map(|member| member.daemon.log());
        logs.collect::<Vec<_>>().join("\n--- b\n")
    }

    /// Whether pod a reaches pod b, and is seen with its own address.
    #[track_caller]
    pub(crate) fn assert_reaches(&self, server: &str) {
        let answer = self.a().pod.ask(Protocol::Tcp, server);
        let answer = answer.unwrap_or_else(|e| panic!("{server}: {e}\n{}", self.logs()));
        assert_eq!(answer.name, "b");
        let client = answer.client.ip().to_string();
        assert!(
            client == "10.244.0.5" || client == "fd00:244::5",
            "{client}"
        );
    }
}

/// As clouds do: what is not from a node's own address is dropped.
pub(crate) fn drop_pod_addresses(fabric: &Netns) {
    for words in [
        "add table bridge cloud",
        "add chain bridge cloud across { type filter hook forward priority 0; }",
        "add rule bridge cloud across ip saddr 10.244.0.0/16 drop",
        "add rule bridge cloud across ip daddr 10.244.0.0/16 drop",
        "add rule bridge cloud across ip6 saddr fd00:244::/48 drop",
    ] {
        fabric.must_run(&[&["nft"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
    }
}

pub(crate) fn pass_pod_addresses(fabric: &Netns) {
    fabric.must_run(&["nft", "delete", "table", "bridge", "cloud"]);
}

impl Member {
    /// `destination via dev` of a route to a peer's pods, if there is one.
    pub(crate) fn route(&self, cidr: &str) -> String {
        let family = if cidr.contains(':') { "-6 " } else { "" };
        self.node.netns.ip(&format!("{family}route show {cidr}"))
    }

    #[track_caller]
    pub(crate) fn wait_route(&self, cidr: &str, part: &str) {
        self.daemon.wait(&format!("route {cidr} {part}"), || {
            self.route(cidr).contains(part)
        });
    }

    /// What one plugin's conf says.
    pub(crate) fn conf(&self) -> Value {
        let conf: Value =
            serde_json::from_slice(&std::fs::read(self.node.path(CONF)).unwrap()).unwrap();
        conf["plugins"][0].clone()
    }

    /// DEL of a pod that [`crate::mtu::add`] has attached.
    #[track_caller]
    pub(crate) fn del(&self, pod: &Netns) {
        let mut conf = self.conf();
        conf["name"] = json!("seaway");
        conf["cniVersion"] = json!("1.1.0");
        let file = self.node.path("del.json");
        std::fs::write(&file, conf.to_string()).unwrap();
        let mut command = self.node.netns.command(bin("seaway-cni"));
        command.env_clear().envs([
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", pod.name()),
            ("CNI_NETNS", pod.path().to_str().unwrap()),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ]);
        command.stdin(std::fs::File::open(file).unwrap());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
    }

    pub(crate) fn mtu_of(&self, link: &str) -> u64 {
        let links = self.node.netns.ip_json(&format!("link show dev {link}"));
        links[0]["mtu"].as_u64().unwrap()
    }

    /// The value of a metric, by the beginning of its line.
    pub(crate) fn metric(&self, line: &str) -> f64 {
        let (_, text) = self.node.get_from("127.0.0.1:10249", "/metrics").unwrap();
        let found = text.lines().find_map(|l| l.strip_prefix(line));
        found
            .unwrap_or_else(|| panic!("no {line} in\n{text}"))
            .trim()
            .parse()
            .unwrap()
    }
}
