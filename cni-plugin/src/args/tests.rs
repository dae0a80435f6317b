use super::*;

fn env(pairs: &[(&str, &str)]) -> Environment {
    let base = [
        ("CNI_CONTAINERID", "c1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/n"),
    ];
    base.iter()
        .chain(pairs)
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

#[track_caller]
fn refused(verb: Verb, pairs: &[(&str, &str)], text: &str) {
    let error = Args::from_env(verb, &env(pairs)).unwrap_err();
    assert_eq!(error.code(), 4);
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn all_missing_variables_are_named_at_once() {
    refused(
        Verb::Add,
        &[("CNI_NETNS", ""), ("CNI_IFNAME", "")],
        "CNI_IFNAME, CNI_NETNS",
    );
    let args = Args::from_env(Verb::Del, &env(&[("CNI_NETNS", "")])).unwrap();
    assert_eq!(args.netns, None);
}

#[test]
fn case_5_ids_and_names_are_checked() {
    for id in ["-bad", "a/b", ".", "a b", "ü", &"a".repeat(181)] {
        refused(Verb::Add, &[("CNI_CONTAINERID", id)], "CNI_CONTAINERID");
    }
    for name in [".", "..", "a:b", "a/b", "a b", "eth%d", "sixteen-bytes-xx"] {
        refused(Verb::Del, &[("CNI_IFNAME", name)], "CNI_IFNAME");
    }
    for (id, name) in [("0", "a.b"), ("A_b.c-d", "fifteen-bytes-x")] {
        assert!(
            Args::from_env(
                Verb::Add,
                &env(&[("CNI_CONTAINERID", id), ("CNI_IFNAME", name)])
            )
            .is_ok()
        );
    }
}

#[test]
fn commands() {
    let command = |text: &str| Command::from_env(&env(&[("CNI_COMMAND", text)]));
    assert_eq!(
        command("ADD").unwrap(),
        Some(Command::Attachment(Verb::Add))
    );
    assert_eq!(command("").unwrap(), None);
    for unknown in ["FOO", "add", "gc"] {
        let error = command(unknown).unwrap_err();
        assert_eq!(error.code(), 4);
        assert!(
            error
                .to_string()
                .contains(&format!("CNI_COMMAND={unknown}"))
        );
    }
}

#[test]
fn case_12_cni_args() {
    let pod = |verb, text: &str| Args::from_env(verb, &env(&[("CNI_ARGS", text)])).map(|a| a.pod);
    let kubernetes = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;\
                      K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=y;IgnoreUnknown=1";
    assert_eq!(
        pod(Verb::Add, kubernetes).unwrap().as_deref(),
        Some("default/web")
    );
    assert_eq!(pod(Verb::Add, "").unwrap(), None);
    assert_eq!(pod(Verb::Add, "FOO=bar;IgnoreUnknown=true").unwrap(), None);
    refused(Verb::Add, &[("CNI_ARGS", "FOO=bar")], "\"FOO\"");
    refused(Verb::Add, &[("CNI_ARGS", "FOO")], "CNI_ARGS");
    assert_eq!(pod(Verb::Del, "FOO=bar;BAZ").unwrap(), None);
}

#[test]
fn addresses_can_be_asked_for() {
    let args = |text: &str| Args::from_env(Verb::Add, &env(&[("CNI_ARGS", text)]));
    let given = args("IP=10.0.0.7,fd00::7/64;MAC=02:00:00:00:00:07").unwrap();
    let texts: Vec<String> = given.ips.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.0.0.7", "fd00::7"]);
    assert_eq!(given.mac.unwrap().to_string(), "02:00:00:00:00:07");
    for wrong in [
        "IP=x",
        "IP=10.0.0.1,10.0.0.2",
        "MAC=1",
        "MAC=01:00:00:00:00:07",
    ] {
        refused(Verb::Add, &[("CNI_ARGS", wrong)], "CNI_ARGS");
        assert!(Args::from_env(Verb::Del, &env(&[("CNI_ARGS", wrong)])).is_ok());
    }
}
