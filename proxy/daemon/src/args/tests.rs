//! What a command line comes to.

use super::*;

mod file;
mod install;
mod mistakes;
mod pod_network;
mod services;

fn run(flags: &str) -> Result<Result<Config, BadConfig>, clap::Error> {
    let words = ["seaway-proxy", "run"]
        .into_iter()
        .chain(flags.split(' ').filter(|w| !w.is_empty()));
    Cli::try_parse_from(words).map(|cli| match cli.verb {
        Verb::Run(args) => args.config("Host-1\n"),
        _ => panic!("not run"),
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
    assert_eq!(pod_network.run_dir, PathBuf::from("/run/seaway"));
    let settings = Settings {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        ..Settings::default()
    };
    assert_eq!(pod_network.settings, settings);
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
}

#[test]
fn names_and_addresses_are_read_as_in_kube_proxys_file() {
    let flags = "--pod-network off --hostname-override=Node-1 \
         --healthz-bind-address=0.0.0.0 --metrics-bind-address=::1";
    let config = run(flags).unwrap().unwrap();
    assert_eq!(config.node_name, "node-1");
    assert_eq!(config.healthz_bind, Some("0.0.0.0:10256".parse().unwrap()));
    assert_eq!(config.metrics_bind, Some("[::1]:10249".parse().unwrap()));
    assert_eq!(parse::node_name(" Node-1\n"), Ok("node-1".to_owned()));
}
