use super::identity::FIRST_INDEX;
use super::*;

fn plan(pod: Option<&str>) -> Plan {
    let args = Args {
        container_id: "c1".into(),
        ifname: "eth0".into(),
        netns: None,
        pod: pod.map(str::to_owned),
        ips: Vec::new(),
        mac: None,
        own_netns: false,
    };
    Plan::new(
        Identity::of("c1", "eth0"),
        &args,
        vec!["10.1.2.3".parse().unwrap(), "fd00::3".parse().unwrap()],
        &config(),
    )
}

fn config() -> Config {
    let conf = br#"{"cniVersion":"1.0.0","name":"seaway","type":"seaway-cni","mtu":1450,
        "ipam":{"type":"seaway","ranges":[{"subnet":"10.1.2.0/24"}]}}"#;
    Config::parse(conf).unwrap()
}

#[test]
fn networks_have_groups_of_their_own_and_names_are_recognised() {
    assert_eq!(group("seaway"), group("seaway"));
    assert_ne!(group("seaway"), group("other"));
    assert!(is_host_ifname(&Identity::of("c1", "eth0").host_ifname));
    for foreign in [
        "sw0",
        "swp1",
        "swec43057c07a",
        "swec43057c07aaa",
        "swEC43057c07aa",
    ] {
        assert!(!is_host_ifname(foreign), "{foreign}");
    }
}

#[test]
fn identity_is_stable_and_of_the_pair() {
    // Written down: DEL of a later version must find these names.
    assert_eq!(Identity::of("c1", "eth0").host_ifname, "swec43057c07aa");
    assert_eq!(Identity::of("c1", "eth0"), Identity::of("c1", "eth0"));
    assert_ne!(Identity::of("c1", "eth0"), Identity::of("c1", "eth1"));
    assert_ne!(Identity::of("c1e", "th0"), Identity::of("c1", "eth0"));
    assert!(Identity::of("c1", "eth0").host_ifname.len() <= 15);
}

#[test]
fn numbers_fit_the_kernels_int_and_the_two_ends_differ() {
    for n in 0..500 {
        let identity = Identity::of(&format!("c{n}"), "eth0");
        let plan = Plan {
            identity,
            ..plan(None)
        };
        for Indexes { host, pod } in plan.indexes() {
            assert!(host.0 >= FIRST_INDEX && i32::try_from(pod.0).is_ok());
            assert_eq!(pod.0, host.0 + 1);
        }
    }
}

#[test]
fn result_names_both_ends() {
    let result = plan(None).result("/run/netns/p1", Dns::default());
    assert_eq!(result.interfaces[0].name, "swec43057c07aa");
    assert_eq!(result.interfaces[1].sandbox, "/run/netns/p1");
    assert_eq!(result.ips[0].address.to_string(), "10.1.2.3/32");
    assert_eq!(result.ips[0].interface, Some(1));
    assert_eq!(result.ips[1].address.to_string(), "fd00::3/128");
    assert_eq!(result.routes[0].dst.to_string(), "0.0.0.0/0");
    assert_eq!(result.routes[1].gw, Some("fe80::1".parse().unwrap()));
}

#[test]
fn an_alias_is_cut_between_characters() {
    let long = "ü".repeat(200);
    assert_eq!(plan(Some(&long)).alias.unwrap().len(), 254);
}
