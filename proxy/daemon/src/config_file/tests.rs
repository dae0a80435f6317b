#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn parse(body: &str) -> Result<(ConfigFile, Vec<Ignored>), BadFile> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{body}");
    read(Path::new("/etc/kube-proxy/config.conf"), &text)
}

/// What is in the ConfigMap of a cluster that kubeadm has made.
const KUBEADM: &str = r#"
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
"#;

#[test]
fn kubeadms_file_is_taken_without_a_word() {
    let (config, ignored) = parse(KUBEADM).unwrap();
    let expect = ConfigFile {
        kubeconfig: Some("/var/lib/kube-proxy/kubeconfig.conf".into()),
        cluster_cidr: Some(vec!["10.244.0.0/16".parse().unwrap()]),
        bind_address: Some("0.0.0.0".parse().unwrap()),
        masquerade_all: Some(false),
        bind_address_hard_fail: Some(false),
        tcp_be_liberal: Some(false),
        udp_timeout: Some(Duration::ZERO),
        udp_stream_timeout: Some(Duration::ZERO),
        ..ConfigFile::default()
    };
    assert_eq!(config, expect);
    assert_eq!(ignored, []);
}

#[test]
fn every_field_that_matters_is_honoured() {
    let text = r#"
mode: iptables
hostnameOverride: " Node-1\n"
clientConnection: { kubeconfig: /k }
clusterCIDR: 10.244.1.0/16, fd00:244::/48
bindAddress: fd00::7
healthzBindAddress: "[::]:10257"
metricsBindAddress: 0.0.0.0
detectLocalMode: BridgeInterface
detectLocal: { bridgeInterface: cni0, interfaceNamePrefix: veth }
nodePortAddresses: [10.1.2.3/8, "fd00::/8"]
iptables:
  localhostNodePorts: false
  masqueradeAll: true
  masqueradeBit: 15
  syncPeriod: 1m30s
  minSyncPeriod: 250ms
conntrack:
  maxPerCore: 0
  min: 1000
  tcpEstablishedTimeout: 2h0m0s
  tcpCloseWaitTimeout: 0s
  tcpBeLiberal: true
  udpTimeout: 10s
  udpStreamTimeout: 1.5m
bindAddressHardFail: true
oomScoreAdj: -999
featureGates: { AllowServiceExternalIPs: false }
"#;
    let networks = |cidrs: [&str; 2]| cidrs.map(|cidr| cidr.parse().unwrap()).to_vec();
    let ports = networks(["10.0.0.0/8", "fd00::/8"]);
    let expect = ConfigFile {
        service_proxy: Some(ServiceProxy::Iptables),
        node_name: Some("node-1".to_owned()),
        kubeconfig: Some("/k".into()),
        cluster_cidr: Some(networks(["10.244.0.0/16", "fd00:244::/48"])),
        bind_address: Some("fd00::7".parse().unwrap()),
        healthz_bind_address: Some("[::]:10257".parse().unwrap()),
        metrics_bind_address: Some("0.0.0.0:10249".parse().unwrap()),
        detect_local_mode: Some(DetectLocalMode::BridgeInterface),
        pod_bridge_interface: Some("cni0".to_owned()),
        pod_interface_name_prefix: Some("veth".to_owned()),
        nodeport_addresses: Some(ports.into_iter().map(NodePortAddress::Network).collect()),
        localhost_nodeports: Some(false),
        masquerade_all: Some(true),
        external_ips: Some(false),
        masquerade_bit: Some(15),
        sync_period: Some(Duration::from_secs(90)),
        min_sync_period: Some(Duration::from_millis(250)),
        max_per_core: Some(0),
        min: Some(1000),
        tcp_established_timeout: Some(Duration::from_hours(2)),
        tcp_close_wait_timeout: Some(Duration::ZERO),
        tcp_be_liberal: Some(true),
        udp_timeout: Some(Duration::from_secs(10)),
        udp_stream_timeout: Some(Duration::from_secs(90)),
        bind_address_hard_fail: Some(true),
        oom_score_adj: Some(-999),
    };
    assert_eq!(parse(text).unwrap(), (expect, Vec::new()));
}

#[test]
fn json_is_read_too() {
    let text = format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","mode":"iptables"}}"#);
    let (config, _) = read(Path::new("c.json"), &text).unwrap();
    assert_eq!(config.service_proxy, Some(ServiceProxy::Iptables));
}

#[test]
fn other_modes_are_served_by_iptables_and_said_so() {
    let sections = "
iptables: { masqueradeAll: true, minSyncPeriod: 1s }
ipvs: { minSyncPeriod: 2s }
nftables: { minSyncPeriod: 3s, masqueradeBit: 8 }
";
    for (mode, seconds, all, bit, node_ports) in [
        ("iptables", 1, Some(true), None, None),
        ("ipvs", 2, Some(true), None, None),
        (
            "nftables",
            3,
            None,
            Some(8),
            Some(vec![NodePortAddress::Primary]),
        ),
    ] {
        let (config, ignored) = parse(&format!("mode: {mode}\n{sections}")).unwrap();
        assert_eq!(config.service_proxy, Some(ServiceProxy::Iptables), "{mode}");
        assert_eq!(config.min_sync_period, Some(Duration::from_secs(seconds)));
        assert_eq!((config.masquerade_all, config.masquerade_bit), (all, bit));
        assert_eq!(config.nodeport_addresses, node_ports, "{mode}");
        let told: Vec<&str> = ignored.iter().map(|i| i.field.as_str()).collect();
        let expect: &[&str] = if mode == "iptables" { &[] } else { &["mode"] };
        assert_eq!(told, expect);
    }
}

#[test]
fn what_has_no_effect_is_named_with_its_value() {
    for (text, field, value) in [
        ("ipvs: { strictARP: true }", "ipvs.strictARP", "true"),
        ("ipvs: { scheduler: rr }", "ipvs.scheduler", "\"rr\""),
        ("clientConnection: { qps: 5 }", "clientConnection.qps", "5"),
        ("logging: { verbosity: 2 }", "logging", "{\"verbosity\":2}"),
        (
            "featureGates: { A: true, AllowServiceExternalIPs: null }",
            "featureGates",
            "{\"A\":true}",
        ),
    ] {
        let (config, ignored) = parse(text).unwrap();
        assert_eq!(config, ConfigFile::default(), "{text}");
        let [told] = &ignored[..] else {
            panic!("{text}: {ignored:?}")
        };
        assert_eq!((told.field.as_str(), told.value.as_str()), (field, value));
    }
}

#[test]
fn what_nobody_knows_is_told_and_the_rest_counts() {
    let text = "
mode: iptables
proxyMode: nftables
masqueradeAl: false
detectLocal: { other: x }
conntrack: { max: 5, min: 7 }
";
    let (config, ignored) = parse(text).unwrap();
    let expect = ConfigFile {
        service_proxy: Some(ServiceProxy::Iptables),
        min: Some(7),
        ..ConfigFile::default()
    };
    assert_eq!(config, expect);
    assert!(ignored.iter().all(|i| i.why == "unknown field"));
    let told = ignored.iter().map(|i| (i.field.as_str(), i.value.as_str()));
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    let expect = [
        ("conntrack.max", "5"),
        ("detectLocal.other", "\"x\""),
        // What says "no" as well: it may be misspelt.
        ("masqueradeAl", "false"),
        ("proxyMode", "\"nftables\""),
    ];
    assert_eq!(told, expect);
    let error = parse("mode: 7\nproxyMode: nftables").unwrap_err();
    assert!(error.to_string().contains("mode: 7"), "{error}");
}

#[test]
fn errors_name_file_field_and_value() {
    for (text, field, value) in [
        ("mode: kernelspace", "mode", "kernelspace"),
        ("mode: 7", "mode", "7"),
        ("oomScoreAdj: -1001", "oomScoreAdj", "-1001"),
        ("oomScoreAdj: low", "oomScoreAdj", "low"),
        ("bindAddressHardFail: 1", "bindAddressHardFail", "1"),
        ("hostnameOverride: ' '", "hostnameOverride", "\" \""),
        ("clusterCIDR: 10.0.0.0/33", "clusterCIDR", "10.0.0.0/33"),
        ("clusterCIDR: 0.0.0.0/0", "clusterCIDR", "0.0.0.0/0"),
        ("bindAddress: eth0", "bindAddress", "eth0"),
        (
            "healthzBindAddress: 0.0.0.0:0",
            "healthzBindAddress",
            "0.0.0.0:0",
        ),
        (
            "metricsBindAddress: ':10249'",
            "metricsBindAddress",
            ":10249",
        ),
        ("detectLocalMode: nodecidr", "detectLocalMode", "nodecidr"),
        (
            "detectLocal: { bridgeInterface: a b }",
            "detectLocal.bridgeInterface",
            "a b",
        ),
        (
            "featureGates: { AllowServiceExternalIPs: 1 }",
            "featureGates.AllowServiceExternalIPs",
            "1",
        ),
        (
            "nodePortAddresses: [primary, 10.0.0.0/8]",
            "nodePortAddresses[0]",
            "primary",
        ),
        (
            "nodePortAddresses: [10.0.0.0/8, x]",
            "nodePortAddresses[1]",
            "x",
        ),
        ("nodePortAddresses: primary", "nodePortAddresses", "primary"),
        (
            "iptables: { masqueradeBit: 32 }",
            "iptables.masqueradeBit",
            "32",
        ),
        (
            "iptables: { masqueradeBit: 1 }",
            "iptables.masqueradeBit",
            "1",
        ),
        (
            "iptables: { syncPeriod: -1s }",
            "iptables.syncPeriod",
            "-1s",
        ),
        ("iptables: { syncPeriod: 30 }", "iptables.syncPeriod", "30"),
        (
            "iptables: { syncPeriod: 1s, minSyncPeriod: 2s }",
            "iptables.minSyncPeriod",
            "2s",
        ),
        (
            "conntrack: { maxPerCore: -1 }",
            "conntrack.maxPerCore",
            "-1",
        ),
        ("conntrack: { min: many }", "conntrack.min", "many"),
        (
            "conntrack: { udpTimeout: 1 day }",
            "conntrack.udpTimeout",
            "1 day",
        ),
        ("kind: Deployment", "document", "kind"),
        ("- a", "document", "not YAML"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        for word in ["/etc/kube-proxy/config.conf: ", field, value] {
            assert!(error.contains(word), "{text}: no {word:?} in {error}");
        }
    }
    for (version, kind, expect) in [
        ("v1", KIND, "apiVersion"),
        (
            API_VERSION,
            "Pod",
            "kind: \"Pod\": expected KubeProxyConfiguration",
        ),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\n");
        let error = read(Path::new("f"), &text).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    assert!(
        read(Path::new("f"), "")
            .unwrap_err()
            .to_string()
            .contains("apiVersion: null")
    );
}
