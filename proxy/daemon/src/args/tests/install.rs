//! Flags of `install`.

use super::*;

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
