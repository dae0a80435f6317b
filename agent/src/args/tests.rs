use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[track_caller]
fn check_refused(line: &str, names: &str) {
    let error = parse(line).expect_err(line).to_string();
    assert!(
        error.contains(names),
        "{line}: {error} does not name {names}"
    );
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}

#[test]
fn run_needs_to_know_the_api_server_and_its_callers() {
    let cli =
        parse("seaway-agent run --kubeconfig /k --client-ca-file /ca --node-name n1").unwrap();
    let Command::Run(run) = cli.command else {
        panic!("not run")
    };
    assert_eq!(run.port, 10250);
    assert_eq!(run.node.node_name.as_deref(), Some("n1"));
    assert_eq!(
        run.node.healthz_bind_address,
        Bind(Some("127.0.0.1:10248".parse().unwrap()))
    );
    check_refused("seaway-agent run --client-ca-file /ca", "--kubeconfig");
    check_refused("seaway-agent run --kubeconfig /k", "--client-ca-file");
}

#[test]
fn a_certificate_needs_its_key() {
    let line = "seaway-agent run --kubeconfig /k --client-ca-file /ca --tls-cert-file /c";
    check_refused(line, "--tls-private-key-file");
}

#[test]
fn labels_and_addresses_come_as_lists() {
    let line = "seaway-agent run --kubeconfig /k --client-ca-file /ca \
                --node-labels a=b,c= --node-ip 10.0.0.1,fd00::1";
    let Command::Run(run) = parse(line).unwrap().command else {
        panic!("not run")
    };
    let labels = [
        ("a".to_owned(), "b".to_owned()),
        ("c".to_owned(), String::new()),
    ];
    assert_eq!(run.node_labels, labels);
    assert_eq!(run.node.node_ip.len(), 2);
    check_refused(
        "seaway-agent run --kubeconfig /k --client-ca-file /ca --node-labels x",
        "KEY=VALUE",
    );
}

#[test]
fn standalone_has_working_defaults() {
    let cli = parse("seaway-agent standalone /etc/manifests --healthz-bind-address off").unwrap();
    let Command::Standalone(args) = cli.command else {
        panic!("not standalone")
    };
    assert_eq!(args.dir, PathBuf::from("/etc/manifests"));
    assert_eq!(args.service_proxy, ServiceProxy::Ebpf);
    assert_eq!(args.node.healthz_bind_address, Bind(None));
    assert_eq!(args.node.eviction_hard, EvictionHard::default());
    check_refused("seaway-agent standalone", "DIR");
    check_refused(
        "seaway-agent standalone /d --eviction-hard pid.available<5%",
        "pid.available",
    );
    check_refused(
        "seaway-agent standalone /d --service-cidr 10.0.0.0",
        "--service-cidr",
    );
    check_refused(
        "seaway-agent standalone /d --healthz-bind-address 1",
        "127.0.0.1:10248",
    );
}

#[test]
fn get_takes_kubectl_names() {
    let Command::Get(get) = parse("seaway-agent get svc -o json").unwrap().command else {
        panic!("not get")
    };
    assert_eq!((get.what, get.output), (What::Services, Output::Json));
    check_refused("seaway-agent get nodes", "nodes");
}
