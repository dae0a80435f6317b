use super::*;

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
        ("--cluster-cidr 0.0.0.0/0", "the whole of IPv4"),
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
