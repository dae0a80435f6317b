//! A KubeProxyConfiguration beside the flags.

use super::*;
use crate::config::{ConntrackConfig, DetectLocal};

/// The run that `flags` and the text of a file mean.
fn with_file(flags: &str, body: &str) -> Config {
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{body}"
    );
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let words = ["seaway-proxy", "run", "--config", &path];
    let words = words
        .into_iter()
        .chain(flags.split(' ').filter(|w| !w.is_empty()));
    let Verb::Run(mut args) = Cli::read(words.map(Into::into)).unwrap().verb else {
        panic!("not run")
    };
    args.take_file("host").unwrap();
    args.config("host").unwrap()
}

const FILE: &str = "
mode: iptables
hostnameOverride: from-file
clusterCIDR: 10.1.0.0/16
healthzBindAddress: 127.0.0.1:1
detectLocalMode: ClusterCIDR
iptables: { masqueradeAll: true, masqueradeBit: 7, syncPeriod: 10s }
conntrack: { min: 5, udpTimeout: 9s }
";

#[test]
fn the_file_counts_where_flags_are_silent() {
    let config = with_file("", FILE);
    assert_eq!(config.node_name, "from-file");
    assert_eq!(config.service_proxy, ServiceProxy::Iptables);
    assert_eq!(config.healthz_bind, Some("127.0.0.1:1".parse().unwrap()));
    // Neither says anything of this one.
    assert_eq!(
        config.metrics_bind,
        Some("127.0.0.1:10249".parse().unwrap())
    );
    let cidrs = vec!["10.1.0.0/16".parse().unwrap()];
    let settings = config.pod_network.unwrap().settings;
    assert_eq!(settings.cluster_cidrs, cidrs);
    let services = config.services;
    assert_eq!(services.detect, DetectLocal::ClusterCidrs(cidrs));
    assert!(services.masquerade_all);
    assert_eq!(services.masquerade_bit, 7);
    assert_eq!(services.sync.period, Duration::from_secs(10));
    let conntrack = services.conntrack;
    assert_eq!((conntrack.min, conntrack.max_per_core), (5, 32_768));
    assert_eq!(conntrack.udp_timeout, Duration::from_secs(9));
}

#[test]
fn flags_go_before_the_file() {
    // Also those that say what they would be without being given.
    let flags = "--node-name flag --service-proxy ebpf --cluster-cidr 10.2.0.0/16 \
         --healthz-bind-address= --masquerade-all=false --iptables-masquerade-bit 14 \
         --iptables-sync-period 30s --conntrack-min 131072 --conntrack-udp-timeout 0s \
         --detect-local-mode NodeCIDR";
    let config = with_file(flags, FILE);
    assert_eq!(config.node_name, "flag");
    assert_eq!(config.service_proxy, ServiceProxy::Ebpf);
    assert_eq!(config.healthz_bind, None);
    let expect = ServicesConfig {
        detect: DetectLocal::NodeCidrs,
        ..ServicesConfig::default()
    };
    assert_eq!(config.services, expect);
}

const VARIABLES: [(&str, &str); 9] = [
    ("SEAWAY_NODE_NAME", "variable"),
    ("SEAWAY_SERVICE_PROXY", "ebpf"),
    ("SEAWAY_CLUSTER_CIDR", "10.3.0.0/16"),
    ("SEAWAY_HEALTHZ_BIND_ADDRESS", "127.0.0.1:3"),
    ("SEAWAY_DETECT_LOCAL_MODE", "NodeCIDR"),
    // Also those that say what they would be without being given.
    ("SEAWAY_MASQUERADE_ALL", "false"),
    ("SEAWAY_IPTABLES_MASQUERADE_BIT", "14"),
    ("SEAWAY_IPTABLES_SYNC_PERIOD", "30s"),
    ("SEAWAY_CONNTRACK_MIN", "131072"),
];

/// An environment is a process' own, so this runs in one that it starts.
#[test]
fn variables_go_before_the_file_and_flags_before_both() {
    const INSIDE: &str = "SEAWAY_TEST_VARIABLES";
    if std::env::var_os(INSIDE).is_none() {
        let (_crate, module) = module_path!().split_once("::").unwrap();
        let test = format!("{module}::variables_go_before_the_file_and_flags_before_both");
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", &test])
            .env(INSIDE, "")
            .envs(VARIABLES);
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(" 1 passed"), "{said}");
        return;
    }
    let config = with_file("", FILE);
    assert_eq!(config.node_name, "variable");
    assert_eq!(config.service_proxy, ServiceProxy::Ebpf);
    assert_eq!(config.healthz_bind, Some("127.0.0.1:3".parse().unwrap()));
    let cidrs = vec!["10.3.0.0/16".parse().unwrap()];
    assert_eq!(config.pod_network.unwrap().settings.cluster_cidrs, cidrs);
    // No variable says something of this one.
    let udp_timeout = Duration::from_secs(9);
    let expect = ServicesConfig {
        detect: DetectLocal::NodeCidrs,
        conntrack: ConntrackConfig {
            udp_timeout,
            ..ConntrackConfig::default()
        },
        ..ServicesConfig::default()
    };
    assert_eq!(config.services, expect);
    let config = with_file("--node-name flag --conntrack-min 7", FILE);
    assert_eq!(config.node_name, "flag");
    assert_eq!(config.services.conntrack.min, 7);
}

#[test]
fn an_address_of_ipv6_makes_the_servers_speak_ipv6() {
    let binds = |flags: &str, body: &str| {
        let config = with_file(&format!("--pod-network off {flags}"), body);
        [config.healthz_bind, config.metrics_bind].map(|bind| bind.unwrap().to_string())
    };
    let v6 = ["[::]:10256", "[::1]:10249"];
    assert_eq!(binds("", "bindAddress: '::'"), v6);
    assert_eq!(binds("--bind-address fd00::1", ""), v6);
    assert_eq!(
        binds("", "bindAddress: fd00::1\nmetricsBindAddress: 127.0.0.1:7"),
        ["[::]:10256", "127.0.0.1:7"]
    );
    assert_eq!(
        binds("", "bindAddress: 0.0.0.0"),
        ["0.0.0.0:10256", "127.0.0.1:10249"]
    );
    let node = |address: &str| {
        with_file("--pod-network off", address)
            .services
            .node_address
    };
    assert_eq!(node("bindAddress: 0.0.0.0"), None);
    assert_eq!(
        node("bindAddress: 192.0.2.1"),
        Some("192.0.2.1".parse().unwrap())
    );
}

/// kubeadm writes empty ones into its file, and kube-proxy takes them for the default there.
#[test]
fn an_empty_address_is_off_on_the_command_line_and_the_default_in_the_file() {
    let binds = |flags: &str, body: &str| {
        let config = with_file(&format!("--pod-network off {flags}"), body);
        [config.healthz_bind, config.metrics_bind].map(|bind| bind.map(|addr| addr.to_string()))
    };
    let both_off = "--healthz-bind-address= --metrics-bind-address=";
    let of_the_file = "healthzBindAddress: 127.0.0.1:1\nmetricsBindAddress: 127.0.0.1:7";
    assert_eq!(binds(both_off, ""), [None, None]);
    assert_eq!(binds(both_off, of_the_file), [None, None]);
    let defaults = ["0.0.0.0:10256", "127.0.0.1:10249"].map(|addr| Some(addr.to_owned()));
    let empty = "healthzBindAddress: ''\nmetricsBindAddress: ''";
    assert_eq!(binds("", empty), defaults);
}

#[test]
fn external_ips_are_switched_off_by_kube_proxys_gate_and_the_flag_goes_before_it() {
    let gate = "featureGates: { AllowServiceExternalIPs: false }";
    let served = |flags: &str, body: &str| {
        let config = with_file(&format!("--pod-network off {flags}"), body);
        config.services.external_ips
    };
    assert!(served("", ""));
    assert!(!served("", gate));
    assert!(served("--allow-service-external-ips", gate));
    assert!(!served("--allow-service-external-ips=false", ""));
}
