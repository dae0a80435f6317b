//! Whatever a runtime sends, the plugin answers or refuses, and never panics.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::args::{Args, Verb};
use crate::config::{Attachments, Config, Network};
use crate::error::Error;
use crate::result::CniResult;
use crate::version::Version;

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "10.0.0.0/24",
            "fd00::/64",
            "10.0.0.7",
            "::",
            "::/0",
            "0.0.0.0/0",
            "255.255.255.255/32",
            "seaway",
            "host-local",
            "/",
            "..",
            "tcp",
            "02:00:00:00:00:01",
            "ffff:ffff::/127",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec![
            "subnet",
            "rangeStart",
            "rangeEnd",
            "hostPort",
            "HostIP",
            "containerPort",
            "protocol",
            "ingressRate",
            "egressBurst",
            "type",
            "dataDir",
            "ranges",
            "sticky",
            "address",
            "gw",
            "interface",
            "ips",
            "interfaces",
            "routes",
            "dst",
            "ip4",
            "ip",
            "name",
            "mac",
            "portMappings",
            "bandwidth",
            "ipRanges",
            "cni",
            "containerID",
            "ifname",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|pairs| {
                let pairs = pairs.into_iter().map(|(k, v)| (k.to_owned(), v));
                Value::Object(pairs.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// A conf that is right but for one key.
fn conf() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "cniVersion",
        "name",
        "mtu",
        "ipam",
        "dns",
        "runtimeConfig",
        "args",
        "prevResult",
        "dataDir",
        "ipMasq",
        "cni.dev/valid-attachments",
        "capabilities",
    ]);
    (key, json_value()).prop_map(|(key, value)| {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "seaway", "type": "seaway-cni",
            "ipam": {"type": "seaway", "ranges": [{"subnet": "10.0.0.0/24"}]},
        });
        conf[key] = value;
        conf
    })
}

/// An error is an object with a code and a text that says something.
fn is_fit_to_print(error: &Error) -> bool {
    let object = error.to_json(Version::NEWEST);
    object["code"].as_u64().is_some_and(|code| code > 0)
        && object["msg"]
            .as_str()
            .is_some_and(|text| !text.is_empty() && !text.contains("not found"))
}

proptest! {
    #[test]
    fn any_bytes_on_stdin(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for error in [Config::parse(&bytes).err(), Network::lenient(&bytes).err(), Attachments::parse(&bytes).err()] {
            prop_assert!(error.is_none_or(|error| is_fit_to_print(&error)));
        }
    }

    #[test]
    fn any_value_of_any_key(conf in conf()) {
        let text = conf.to_string();
        if let Err(error) = Config::parse(text.as_bytes()) {
            prop_assert!(error.to_json(Version::NEWEST)["code"].as_u64().is_some_and(|code| code > 0));
        }
        // DEL takes every conf that has a name and a version.
        let lenient = Network::lenient(text.as_bytes());
        prop_assert!(lenient.is_ok() || !conf["name"].is_string() || conf["name"] != "seaway" || conf["cniVersion"] != "1.1.0");
        drop(Attachments::parse(text.as_bytes()));
    }

    #[test]
    fn any_prev_result(value in json_value()) {
        if let Ok(result) = CniResult::parse(&value) {
            for version in Version::SUPPORTED {
                let text = result.clone().render(version);
                let back = CniResult::parse(&serde_json::from_str(&text).unwrap());
                prop_assert!(back.is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn any_cni_args(text in "\\PC{0,60}|((IP|MAC|FOO|IgnoreUnknown|K8S_POD_NAME)=[0-9a-f:.,;=]{0,20};?){0,4}") {
        let environment = [("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/n"), ("CNI_ARGS", &text)];
        let environment = environment.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        drop(Args::from_env(Verb::Add, &environment));
        // DEL asks for nothing, so nothing can be wrong with it.
        prop_assert!(Args::from_env(Verb::Del, &environment).is_ok());
    }
}
