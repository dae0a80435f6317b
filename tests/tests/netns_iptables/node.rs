//! A node with pods and the iptables backend.

mod judged;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{
    DesiredState, Endpoint, FamilyState, Frontend, FrontendKind, LocalSources, Protocol,
    ServicePort, ServicePortName,
};
use seaway_proxy_core::sync_once;
use seaway_proxy_iptables::{Config, Flavour, Iptables, Rendered};
use seaway_testbed::peer::{self, Answer, Server};
use seaway_testbed::{Netns, XTABLES_WAIT, connect, require_root};

pub(crate) use judged::{Who, endpoint, packet};

/// The Service's address and the port of both its protocols.
pub(crate) const VIP: &str = "10.96.0.10:80";
/// Where pods listen.
const POD_PORT: u16 = 8080;
/// An address beyond the node's uplink.
pub(crate) const OUTSIDE: &str = "192.168.60.2";

/// Two pods with servers, a third one that is a client, and somebody outside.
pub(crate) struct Node {
    pub(crate) backend: Iptables,
    pub(crate) flavour: Flavour,
    /// Of the last round.
    pub(crate) desired: DesiredState,
    /// Before the namespaces, so that they end first.
    _servers: Vec<Server>,
    pub(crate) host: Netns,
    pub(crate) pods: Vec<Netns>,
    pub(crate) client: Netns,
    pub(crate) outside: Netns,
}

impl Node {
    pub(crate) fn new(config: Config) -> Self {
        let node = Netns::new("node");
        node.sysctl("ipv4/ip_forward", "1");
        let pods: Vec<Netns> = (0..2).map(|i| pod(&node, i)).collect();
        let client = pod(&node, 9);
        let outside = Netns::new("outside");
        let beyond = format!("{OUTSIDE}/24");
        connect(
            &node,
            "uplink",
            "192.168.60.1/24",
            &outside,
            "eth0",
            &beyond,
        );
        // What is not translated has somewhere to go, as on a real node.
        node.ip(&format!("route add default via {OUTSIDE}"));
        outside.ip("route add 10.0.0.0/8 via 192.168.60.1");
        let mut servers = Vec::new();
        for (i, pod) in pods.iter().enumerate() {
            let address = format!("10.244.{i}.2:{POD_PORT}");
            for protocol in [peer::Protocol::Tcp, peer::Protocol::Udp] {
                servers.push(pod.serve(protocol, &address, &format!("pod{i}")));
            }
        }
        let backend = node.enter(|| block_on(Iptables::new(config))).unwrap();
        let flavour = backend.flavour();
        Self {
            backend,
            flavour,
            desired: DesiredState::default(),
            _servers: servers,
            host: node,
            pods,
            client,
            outside,
        }
    }

    /// A round that reads back first.
    pub(crate) fn sync(&mut self, desired: &DesiredState) -> bool {
        let backend = &mut self.backend;
        let round = || block_on(sync_once(backend, None, desired));
        let changed = self
            .host
            .enter(round)
            .unwrap_or_else(|e| panic!("{}: {e:?}", self.flavour))
            .changed;
        self.desired.clone_from(desired);
        changed
    }

    pub(crate) fn read_back(&mut self) -> Rendered {
        let backend = &mut self.backend;
        self.host.enter(|| block_on(backend.read_back())).unwrap()
    }

    /// In words, as iptables says it.
    pub(crate) fn read_in_full(&mut self) -> Rendered {
        let backend = &mut self.backend;
        let read = || block_on(backend.read_in_full());
        self.host.enter(read).unwrap()
    }

    /// The same read by a backend that has no `iptables-save`: nft's rules are read without.
    pub(crate) fn read_without_save(&mut self) -> Rendered {
        let mut config = config(self.flavour);
        config.nft.save = "/nowhere/iptables-save".into();
        config.nft.save_v6.clone_from(&config.nft.save);
        config.ipv6 = Some(true);
        let read = || {
            let mut backend = block_on(Iptables::new(config)).unwrap();
            block_on(backend.read_back()).unwrap()
        };
        self.host.enter(read)
    }

    pub(crate) fn remove_all(&mut self) {
        let backend = &mut self.backend;
        self.host.enter(|| block_on(backend.remove_all())).unwrap();
    }

    /// `iptables-save`, without the parts that differ each time.
    pub(crate) fn dump(&self, flavour: Flavour) -> String {
        let dump = self.host.must_run(&[format!("iptables-{flavour}-save")]);
        let lines = dump.lines().filter(|line| !line.starts_with('#'));
        // Packet counters of built-in chains.
        lines
            .map(|line| line.split(" [").next().unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Loads rules that are somebody else's.
    pub(crate) fn restore(&self, flavour: Flavour, rules: &str) {
        let restore = format!("iptables-{flavour}-restore {XTABLES_WAIT} --noflush");
        let script = format!("{restore} <<'END'\n{rules}\nEND");
        self.host.must_run(&["sh", "-c", &script]);
    }
}

/// Every test runs with both flavours.
pub(crate) fn each_flavour(mut test: impl FnMut(Flavour)) {
    if !require_root() {
        return;
    }
    for flavour in [Flavour::Nft, Flavour::Legacy] {
        eprintln!("with the {flavour} flavour");
        test(flavour);
    }
}

pub(crate) fn config(flavour: Flavour) -> Config {
    Config {
        flavour: Some(flavour),
        // Nothing can be remembered there, which most tests can do without.
        run_dir: "/proc/none".into(),
        ..Config::default()
    }
}

/// The Service at [`VIP`], TCP and UDP, answered by the first `pods` pods.
pub(crate) fn web(pods: u8) -> DesiredState {
    let mut desired = DesiredState::default();
    for (port, protocol) in [("http", Protocol::Tcp), ("http-udp", Protocol::Udp)] {
        let endpoints = (0..pods).map(|i| Endpoint {
            addr: SocketAddr::from(([10, 244, i, 2], POD_PORT)),
            local: true,
        });
        let addr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
        let frontend = Frontend {
            addr,
            port: 80,
            protocol,
            kind: FrontendKind::ClusterIp,
        };
        let cluster: Vec<Endpoint> = endpoints.collect();
        let serving = match protocol {
            Protocol::Tcp => Vec::new(),
            Protocol::Udp | Protocol::Sctp => cluster.iter().map(|e| e.addr).collect(),
        };
        let service = ServicePort {
            frontends: vec![frontend],
            cluster,
            serving,
            ..ServicePort::default()
        };
        desired.v4.services.insert(name("web", port), service);
    }
    desired
}

/// `count` Services of `endpoints` endpoints each, one in ten without any.
pub(crate) fn many(count: u32, endpoints: u32) -> DesiredState {
    let mut desired = web(2);
    for i in 0..count {
        let addr = Ipv4Addr::from(0x0a61_0000 + i);
        let frontend = Frontend {
            addr: addr.into(),
            port: 80,
            protocol: if i % 3 == 0 {
                Protocol::Udp
            } else {
                Protocol::Tcp
            },
            kind: FrontendKind::ClusterIp,
        };
        let endpoint = |e: u32| Endpoint {
            addr: SocketAddr::from((Ipv4Addr::from(0x0af5_0000 + i * endpoints + e), POD_PORT)),
            local: e == 0 && i % 50 == 0,
        };
        let endpoints = if i % 10 == 9 { 0 } else { endpoints };
        let endpoints = (0..endpoints).map(endpoint).collect();
        let service = ServicePort {
            frontends: vec![frontend],
            cluster: endpoints,
            ..ServicePort::default()
        };
        desired
            .v4
            .services
            .insert(name(&format!("svc-{i}"), "http"), service);
    }
    desired
}

/// The same Services with the IPv4 addresses inside of IPv6 ones.
pub(crate) fn in_v6(half: &FamilyState) -> FamilyState {
    let v6 = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => {
            let [a, b, c, d] = addr.octets().map(u16::from);
            IpAddr::from([0xfd00, a, b, 0, 0, c, 0, d])
        }
        IpAddr::V6(_) => addr,
    };
    let mut half = half.clone();
    half.local_sources = LocalSources::Networks(vec!["fd00:10:244::/48".parse().unwrap()]);
    for port in half.services.values_mut() {
        port.frontends.iter_mut().for_each(|f| f.addr = v6(f.addr));
        for endpoint in port.cluster.iter_mut().chain(&mut port.local) {
            endpoint.addr.set_ip(v6(endpoint.addr.ip()));
        }
        port.serving
            .iter_mut()
            .for_each(|addr| addr.set_ip(v6(addr.ip())));
    }
    half
}

fn name(service: &str, port: &str) -> ServicePortName {
    ServicePortName {
        namespace: "default".to_owned(),
        name: service.to_owned(),
        port: port.to_owned(),
    }
}

/// Asks often enough that two endpoints both answer: each is left out with 1 in 2^40.
pub(crate) fn answers(from: &Netns, protocol: peer::Protocol, address: &str) -> Vec<Answer> {
    let ask = |n| {
        from.ask(protocol, address)
            .unwrap_or_else(|e| panic!("question {n}: {e}"))
    };
    (0..40).map(ask).collect()
}

pub(crate) fn names(answers: &[Answer]) -> BTreeSet<&str> {
    answers.iter().map(|answer| answer.name.as_str()).collect()
}

pub(crate) fn error_of(result: io::Result<Answer>) -> io::ErrorKind {
    result.expect_err("nobody should answer").kind()
}

/// The namespace of the calling thread is the one in which commands run, so the
/// runtime has no other threads.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

fn pod(node: &Netns, i: u8) -> Netns {
    let pod = Netns::new(&format!("pod{i}"));
    let (here, there) = (format!("10.244.{i}.1/24"), format!("10.244.{i}.2/24"));
    connect(node, &format!("pod{i}"), &here, &pod, "eth0", &there);
    pod.ip(&format!("route add default via 10.244.{i}.1"));
    pod
}
