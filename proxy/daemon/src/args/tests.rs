use seaway_proxy_core::node::NodePorts;

use super::*;
use crate::config::DetectLocal;

fn run(flags: &str) -> Result<Result<Config, BadConfig>, clap::Error> {
    let words = ["seaway-proxy", "run"]
        .into_iter()
        .chain(flags.split(' ').filter(|w| !w.is_empty()));
    Cli::try_parse_from(words).map(|cli| match cli.verb {
        Verb::Run(args) => args.config("Host-1\n"),
        Verb::Cleanup(_) => panic!("not run"),
    })
}

#[test]
fn defaults() {
    let config = run("--cluster-cidr 10.244.3.0/16").unwrap().unwrap();
    assert_eq!(config.node_name, "host-1");
    assert_eq!(config.service_proxy, ServiceProxy::Ebpf);
    assert_eq!(config.healthz_bind, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(
        config.metrics_bind,
        Some("127.0.0.1:10249".parse().unwrap())
    );
    let pod_network = config.pod_network.unwrap();
    assert_eq!(
        pod_network.cluster_cidrs,
        ["10.244.0.0/16".parse().unwrap()]
    );
    assert_eq!(pod_network.run_dir, PathBuf::from("/run/seaway"));
    assert_eq!(pod_network.mtu, None);
}

#[test]
fn flags_reach_the_config() {
    let config = run("--hostname-override n1 --service-proxy iptables --pod-network off \
         --healthz-bind-address= --metrics-bind-address=127.0.0.1:1 --bpffs-dir /b --cgroup-root /c")
    .unwrap()
    .unwrap();
    assert_eq!(config.node_name, "n1");
    assert_eq!(config.service_proxy, ServiceProxy::Iptables);
    assert!(config.pod_network.is_none());
    assert_eq!(config.healthz_bind, None);
    assert_eq!(config.metrics_bind, Some("127.0.0.1:1".parse().unwrap()));
    assert_eq!(config.bpffs_dir, PathBuf::from("/b"));
    assert_eq!(config.cgroup_root, Some(PathBuf::from("/c")));
    let config = run("--cluster-cidr 10.1.0.0/16,10.2.0.0/16 --mtu 1400")
        .unwrap()
        .unwrap();
    let pod_network = config.pod_network.unwrap();
    assert_eq!(pod_network.cluster_cidrs.len(), 2);
    assert_eq!(pod_network.mtu, Some(1400));
}

#[test]
fn bad_flags_name_the_flag() {
    for (flags, expect) in [
        ("--service-proxy nftables", "--service-proxy"),
        ("--pod-network maybe", "--pod-network"),
        ("--cluster-cidr 10.0.0.0/33", "--cluster-cidr"),
        ("--cluster-cidr 0.0.0.0/0", "the whole address family"),
        ("--detect-local-mode nodecidr", "--detect-local-mode"),
        ("--nodeport-addresses 10.0.0.0/33", "--nodeport-addresses"),
        ("--pod-bridge-interface br0;x", "--pod-bridge-interface"),
        (
            "--pod-interface-name-prefix=",
            "--pod-interface-name-prefix",
        ),
        ("--masquerade-all=maybe", "--masquerade-all"),
        ("--healthz-bind-address 10256", "--healthz-bind-address"),
        ("--mtu 10", "--mtu"),
        ("--node-name=", "--node-name"),
        ("--node-name ../x", "--node-name"),
        ("--node-name Node", "--node-name"),
        ("--node-name a..b", "--node-name"),
        ("--run-dir run", "--run-dir"),
        ("--unknown", "--unknown"),
    ] {
        let text = run(flags).unwrap_err().to_string();
        assert!(text.contains(expect), "{flags}: {text}");
    }
}

#[test]
fn host_names_that_name_no_node() {
    for name in ["", "../x", "a_b", "a."] {
        let words = ["seaway-proxy", "run", "--cluster-cidr", "10.244.0.0/16"];
        let Verb::Run(args) = Cli::try_parse_from(words).unwrap().verb else {
            panic!("not run")
        };
        let refused = BadConfig::NoNodeName(name.to_owned());
        assert_eq!(args.config(name).unwrap_err(), refused);
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    assert_eq!(run("").unwrap().unwrap_err(), BadConfig::NoClusterCidr);
    assert_eq!(
        run("--service-proxy off --pod-network off")
            .unwrap()
            .unwrap_err(),
        BadConfig::NothingToDo
    );
}

#[test]
fn pods_are_told_apart_as_asked_or_by_what_is_known_of_them() {
    let detect = |flags: &str| run(flags).unwrap().map(|config| config.services.detect);
    let off = "--pod-network off --cluster-cidr 10.244.0.0/16,fd00:10::/48";
    let cidrs = ["10.244.0.0/16", "fd00:10::/48"].map(|cidr| cidr.parse().unwrap());
    let cluster = || DetectLocal::ClusterCidrs(cidrs.to_vec());
    let on = "--cluster-cidr 10.244.0.0/16,fd00:10::/48";
    let prefix = |name: &str| DetectLocal::InterfacePrefix(name.to_owned());
    assert_eq!(detect(off), Ok(cluster()));
    assert_eq!(detect(on), Ok(prefix("sw")));
    let none = DetectLocal::ClusterCidrs(Vec::new());
    assert_eq!(detect("--pod-network off"), Ok(none));
    let mode = |more: &str| detect(&format!("{on} --detect-local-mode {more}"));
    assert_eq!(mode("ClusterCIDR"), Ok(cluster()));
    assert_eq!(mode("NodeCIDR"), Ok(DetectLocal::NodeCidrs));
    assert_eq!(
        mode("BridgeInterface --pod-bridge-interface cni0"),
        Ok(DetectLocal::Interface("cni0".to_owned()))
    );
    assert_eq!(
        mode("InterfaceNamePrefix --pod-interface-name-prefix cali"),
        Ok(prefix("cali"))
    );
    for (name, flag) in [
        ("BridgeInterface", "--pod-bridge-interface"),
        ("InterfaceNamePrefix", "--pod-interface-name-prefix"),
    ] {
        let text = mode(name).unwrap_err().to_string();
        assert!(text.contains(name) && text.contains(flag), "{text}");
    }
}

#[test]
fn switches_and_ranges_are_kube_proxys() {
    let services = |flags: &str| {
        let config = run(&format!("--pod-network off {flags}")).unwrap();
        config.map(|config| config.services)
    };
    let default = services("").unwrap();
    assert!(default.localhost_node_ports && !default.masquerade_all);
    assert_eq!(default.node_ports, NodePorts::All);
    let other = services("--iptables-localhost-nodeports=false --masquerade-all").unwrap();
    assert!(!other.localhost_node_ports && other.masquerade_all);
    let node_ports = |value: &str| {
        let services = services(&format!("--nodeport-addresses {value}"));
        services.map(|services| services.node_ports)
    };
    assert_eq!(node_ports("primary"), Ok(NodePorts::Primary));
    assert_eq!(
        node_ports("primary,10.0.0.0/8"),
        Err(BadConfig::PrimaryAndMore)
    );
    let ranges = ["10.0.0.0/8", "fd00::/8"].map(|cidr| cidr.parse().unwrap());
    assert_eq!(
        node_ports("10.1.2.3/8,fd00::/8"),
        Ok(NodePorts::Networks(ranges.to_vec()))
    );
}
