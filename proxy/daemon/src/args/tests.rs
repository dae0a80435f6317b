use seaway_proxy_core::node::NodePorts;

use seaway_podnet::{PodRoutes, VxlanSettings};

use super::*;
use crate::config::DetectLocal;

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

fn settings(flags: &str) -> Result<Settings, BadConfig> {
    let config = run(flags).unwrap();
    config.map(|config| config.pod_network.unwrap().settings)
}

#[test]
fn the_pod_network_is_as_asked_for() {
    let dual = "--cluster-cidr 10.244.0.0/16,fd00:244::/48";
    let flags = "--mtu 1400 --pod-routes vxlan --vxlan-port 4789 --vxlan-vni 16777215 \
         --node-ip 192.0.2.11 --node-ip 2001:db8::11 --uplink bond0.7 \
         --non-masquerade-cidr 10.0.0.1/8,fd00::/8";
    let expect = Settings {
        mode: PodRoutes::Vxlan,
        vxlan: VxlanSettings {
            port: 4789,
            vni: 16_777_215,
            ..VxlanSettings::default()
        },
        node_ips: ["192.0.2.11", "2001:db8::11"]
            .map(|ip| ip.parse().unwrap())
            .into(),
        uplink: Some("bond0.7".to_owned()),
        cluster_cidrs: ["10.244.0.0/16", "fd00:244::/48"]
            .map(|c| c.parse().unwrap())
            .into(),
        non_masquerade_cidrs: ["10.0.0.0/8", "fd00::/8"]
            .map(|c| c.parse().unwrap())
            .into(),
        mtu: Some(1400),
    };
    assert_eq!(settings(&format!("{dual} {flags}")), Ok(expect));
    assert_eq!(
        settings(&format!("{dual} --pod-routes direct"))
            .unwrap()
            .mode,
        PodRoutes::Direct
    );
    // IPv6 alone is a cluster, too.
    assert!(settings("--cluster-cidr fd00:244::/48").is_ok());
}

#[test]
fn flags_of_the_pod_network_that_contradict_each_other_are_named() {
    for (flags, words) in [
        (
            "--node-ip 192.0.2.1,192.0.2.2",
            ["--node-ip", "192.0.2.1 and 192.0.2.2"],
        ),
        (
            "--node-ip 192.0.2.1,fd00::1,fd00::2",
            ["--node-ip", "fd00::1 and fd00::2"],
        ),
        (
            "--node-ip fd00::1,192.0.2.1,192.0.2.2",
            ["--node-ip", "192.0.2.1 and 192.0.2.2"],
        ),
        ("--mtu 1279", ["--mtu 1279", "fd00:244::/48"]),
    ] {
        let flags = format!("--cluster-cidr 10.244.0.0/16,fd00:244::/48 {flags}");
        let text = settings(&flags).unwrap_err().to_string();
        assert!(
            words.iter().all(|word| text.contains(word)),
            "{flags}: {text}"
        );
    }
    assert!(settings("--cluster-cidr 10.244.0.0/16 --mtu 1279").is_ok());
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
        ("--mtu 65536", "--mtu"),
        ("--pod-routes bgp", "auto, vxlan, direct"),
        ("--vxlan-port 0", "--vxlan-port"),
        ("--vxlan-vni 16777216", "--vxlan-vni"),
        ("--vxlan-vni 0", "--vxlan-vni"),
        ("--node-ip 127.0.0.1", "--node-ip"),
        ("--node-ip fe80::1", "--node-ip"),
        ("--node-ip node", "--node-ip"),
        ("--uplink a/b", "--uplink"),
        ("--uplink sixteen-is-a-lot", "--uplink"),
        ("--non-masquerade-cidr 10.0.0.0/33", "--non-masquerade-cidr"),
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

fn install_args(flags: &str) -> Result<InstallArgs, clap::Error> {
    let words = ["seaway-proxy", "install"].into_iter();
    let words = words.chain(flags.split(' ').filter(|w| !w.is_empty()));
    Cli::try_parse_from(words).map(|cli| match cli.verb {
        Verb::Install(args) => *args,
        _ => panic!("not install"),
    })
}

#[test]
fn install_has_the_usual_places() {
    let install = install_args("").unwrap().install();
    assert_eq!(install.cni_bin_dir, PathBuf::from("/opt/cni/bin"));
    assert_eq!(install.cni_conf_dir, PathBuf::from("/etc/cni/net.d"));
    assert_eq!((install.source, install.loopback), (None, false));
    let host = install.host.unwrap();
    assert_eq!(
        host.network_manager_dir,
        PathBuf::from("/etc/NetworkManager")
    );
    assert_eq!(host.systemd_run_dir, PathBuf::from("/run/systemd"));
}

#[test]
fn install_flags() {
    let flags = "--host-config off --loopback --take-over-conf 10-a.conflist,20-b.conf";
    let install = install_args(flags).unwrap().install();
    assert!(install.host.is_none() && install.loopback);
    assert_eq!(install.take_over, ["10-a.conflist", "20-b.conf"]);
    for (flags, expect) in [
        ("--take-over-conf 05-seaway.conflist", "our own conf"),
        ("--take-over-conf ../10-a.conflist", "--take-over-conf"),
        ("--take-over-conf passwd", "10-bridge.conflist"),
        ("--cni-bin-dir bin", "--cni-bin-dir"),
        ("--remove --loopback", "--loopback"),
        ("--remove --source /x", "--source"),
        ("--host-config maybe", "--host-config"),
    ] {
        let error = install_args(flags).unwrap_err().to_string();
        assert!(error.contains(expect), "{flags}: {error}");
    }
}

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
    args.take_file().unwrap();
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

#[test]
fn pauses_that_cannot_be_are_refused() {
    for flags in [
        "--iptables-sync-period 0s",
        "--iptables-sync-period 1s --iptables-min-sync-period 2s",
    ] {
        let flags = format!("--pod-network off {flags}");
        let error = run(&flags).unwrap().unwrap_err();
        assert!(matches!(error, BadConfig::Periods(_)), "{error}");
    }
    for flag in [
        "--iptables-sync-period ever",
        "--conntrack-udp-timeout -1s",
        "--iptables-masquerade-bit 32",
    ] {
        assert!(run(flag).is_err(), "{flag}");
    }
}

#[test]
fn a_link_that_is_named_as_pods_links_are_is_told() {
    let names = ["swp1", "eth0", "sw0123456789ab", "sw0123456789aB", "swan0"];
    let told = doubts::strangers(names.map(str::to_owned).to_vec());
    assert_eq!(told, ["swp1", "sw0123456789aB", "swan0"]);
}

#[test]
fn what_may_be_a_mistake_is_told_at_the_start() {
    let doubts = |flags: &str| {
        let words = ["seaway-proxy", "run"].into_iter();
        let words = words.chain(flags.split(' '));
        match Cli::try_parse_from(words).unwrap().verb {
            Verb::Run(args) => args.doubts(),
            _ => panic!("not run"),
        }
    };
    for (flags, expect) in [
        (
            "--cluster-cidr 10.244.0.0/16,10.244.0.0/24",
            "10.244.0.0/16 and 10.244.0.0/24",
        ),
        ("--cluster-cidr 10.244.0.0/16,10.244.0.0/16", "overlap"),
        (
            "--cluster-cidr fd00::/64,10.244.0.0/16,fd00::/48",
            "fd00::/64 and fd00::/48",
        ),
        ("--uplink nosuch", "--uplink nosuch"),
        ("--cni-bin /nope", "--cni-bin /nope"),
        ("--cni-bin /", "--cni-bin /"),
        ("--masquerade-all", "--masquerade-all"),
    ] {
        let told = doubts(flags);
        assert!(
            matches!(&told[..], [one] if one.contains(expect)),
            "{told:?}"
        );
    }
    let fine = "--cluster-cidr 10.244.0.0/16,fd00::/48,10.245.0.0/16 --uplink lo --cni-bin /bin/sh";
    assert_eq!(doubts(fine), Vec::<String>::new());
    let off = "--pod-network off --uplink nosuch --cni-bin /nope";
    assert_eq!(doubts(off), Vec::<String>::new());
}
