//! Flags that are refused, and those that are told of.

use super::*;

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
        ("--healthz-bind-address 0.0.0.0:0", "127.0.0.1:10256"),
        ("--metrics-bind-address :1", "127.0.0.1:10249"),
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
        ("--node-name no_de", "--node-name"),
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
