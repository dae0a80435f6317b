//! Flags of the pod network.

use clap::CommandFactory as _;
use seaway_podnet::{PodRoutes, VxlanSettings};

use super::*;

fn settings(flags: &str) -> Result<Settings, BadConfig> {
    let config = run(flags).unwrap();
    config.map(|config| config.pod_network.unwrap().settings)
}

#[test]
fn the_pod_network_is_as_asked_for() {
    let dual = "--cluster-cidr 10.244.0.0/16,fd00:244::/48";
    let flags = "--mtu 1400 --pod-routes vxlan --vxlan-port 4789 --vxlan-vni 16777215 \
         --node-ip 192.0.2.11 --node-ip 2001:db8::11 --uplink bond0.7 \
         --non-masquerade-cidr 10.0.0.1/8,fd00::/8 --sticky-addresses";
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
        sticky_addresses: true,
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
fn addresses_stick_only_if_asked_for_by_flag_or_variable() {
    let sticky = |flag: &str| {
        let settings = settings(&format!("--cluster-cidr 10.244.0.0/16 {flag}"));
        settings.map(|settings| settings.sticky_addresses)
    };
    for (flag, expect) in [
        ("", false),
        ("--sticky-addresses", true),
        ("--sticky-addresses=true", true),
        ("--sticky-addresses=false", false),
    ] {
        assert_eq!(sticky(flag), Ok(expect), "{flag}");
    }
    assert!(run("--sticky-addresses=maybe").is_err());
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let mut flags = run.get_arguments();
    let flag = flags.find(|flag| flag.get_long() == Some("sticky-addresses"));
    let variable = flag.unwrap().get_env().unwrap();
    assert_eq!(variable, "SEAWAY_STICKY_ADDRESSES");
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
