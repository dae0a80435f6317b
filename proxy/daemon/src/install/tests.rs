use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

/// Folders of a node's own.
fn node() -> (tempfile::TempDir, Installed) {
    let dir = tempfile::tempdir().unwrap();
    let installed = Installed {
        cni_bin_dir: Some(dir.path().join("bin")),
        cni_conf_dir: dir.path().join("net.d"),
        run_dir: dir.path().join("run"),
        host: HostConfig {
            network_manager_dir: dir.path().join("nm"),
            systemd_run_dir: dir.path().join("systemd"),
        },
    };
    (dir, installed)
}

/// Files with their contents, by their paths in `dir`.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn case_62_network_daemons_are_told_if_they_are_there() {
    let (dir, installed) = node();
    assert!(installed.host.write().is_empty());
    assert_eq!(files(dir.path()), BTreeMap::new());
    fs::create_dir_all(dir.path().join("nm")).unwrap();
    for sign in ["systemd/netif", "systemd/system"] {
        fs::create_dir_all(dir.path().join(sign)).unwrap();
    }
    let nothing: &[&str] = &[];
    assert_eq!(
        installed.host.write(),
        [
            &["nmcli", "general", "reload", "conf"],
            &["networkctl", "reload"][..],
            nothing,
            nothing
        ]
    );
    assert!(installed.host.write().is_empty());
    let found = files(dir.path());
    let settings = |name: &str| -> Vec<&str> {
        found[name]
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect()
    };
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(
        settings("nm/conf.d/50-seaway.conf"),
        [
            "[keyfile]",
            "unmanaged-devices+=interface-name:sw????????????;interface-name:seaway.vx"
        ]
    );
    assert_eq!(
        settings("systemd/network/50-seaway.network"),
        [
            "[Match]",
            "Name=sw???????????? seaway.vx",
            "",
            "[Link]",
            "Unmanaged=yes"
        ]
    );
    assert_eq!(
        settings("systemd/networkd.conf.d/50-seaway.conf"),
        [
            "[Network]",
            "ManageForeignRoutes=no",
            "ManageForeignRoutingPolicyRules=no"
        ]
    );
    assert_eq!(
        settings("sysctl.d/zzz-seaway.conf"),
        [
            "-net.ipv4.conf.sw????????????.forwarding = 1",
            "-net.ipv4.conf.sw????????????.rp_filter = 2",
            "-net.ipv4.conf.sw????????????.send_redirects = 0",
            "-net.ipv6.conf.sw????????????.accept_ra = 0"
        ]
    );
    // What others have there stays.
    fs::write(dir.path().join("systemd/network/10-eth0.network"), "").unwrap();
    assert_eq!(installed.host.erase().unwrap().len(), 4);
    assert!(installed.host.erase().unwrap().is_empty());
    assert_eq!(files(dir.path()).len(), 1);
    assert!(!dir.path().join("systemd/networkd.conf.d").exists());
    assert!(!dir.path().join("sysctl.d").exists());
}

#[test]
fn a_folder_of_sysctls_that_others_use_stays() {
    let (dir, installed) = node();
    fs::create_dir_all(dir.path().join("systemd/system")).unwrap();
    assert_eq!(installed.host.write().len(), 1);
    fs::write(dir.path().join("sysctl.d/50-others.conf"), "").unwrap();
    assert!(!installed.host.erase().unwrap().is_empty());
    let left = files(dir.path());
    assert_eq!(left.keys().collect::<Vec<_>>(), ["sysctl.d/50-others.conf"]);
}

#[test]
fn case_61_a_conf_set_aside_comes_back_unless_its_name_is_taken() {
    let (dir, installed) = node();
    let confs = &installed.cni_conf_dir;
    assert!(!take_over::set_aside(confs, "10-a.conflist").unwrap());
    fs::create_dir(confs).unwrap();
    assert!(!take_over::set_aside(confs, "10-a.conflist").unwrap());
    for name in ["10-a.conflist", "20-b.conf"] {
        fs::write(confs.join(name), name).unwrap();
        assert!(take_over::set_aside(confs, name).unwrap());
        assert!(!take_over::set_aside(confs, name).unwrap());
    }
    assert_eq!(foreign_confs::find(confs).unwrap(), []);
    fs::write(confs.join("20-b.conf"), "new").unwrap();
    assert!(installed.put_confs_back().unwrap());
    assert!(!installed.put_confs_back().unwrap());
    let row = |name: &str, text: &str| (format!("net.d/{name}"), text.to_owned());
    assert_eq!(
        files(dir.path()),
        BTreeMap::from([
            row("10-a.conflist", "10-a.conflist"),
            row("20-b.conf", "new"),
            row("20-b.conf.seaway-disabled", "20-b.conf"),
        ])
    );
}

fn record(installed: &Installed, boot: &str, name: &str, text: &str) {
    let dir = installed.run_dir.join("cni/seaway").join(boot);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(name), text).unwrap();
}

#[tokio::test]
async fn case_61_the_plugin_stays_while_a_pod_needs_it() {
    let (dir, installed) = node();
    let bin = installed.cni_bin_dir.clone().unwrap();
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("seaway-cni"), "plugin").unwrap();
    assert_eq!(plugin::ensure_loopback(&bin).unwrap(), Loopback::Missing);
    assert_eq!(plugin::ensure_loopback(&bin).unwrap(), Loopback::Ours);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim();
    // Both records of one attachment, one that is damaged, and what is none.
    record(
        &installed,
        boot,
        "10.0.0.2=c1:eth0",
        "{\"pod\":\"default/web\"}",
    );
    record(
        &installed,
        boot,
        "fd00::2=c1:eth0",
        "{\"pod\":\"default/web\"}",
    );
    record(&installed, boot, "10.0.0.3=c2:eth0", "{");
    record(&installed, boot, ".order", "10.0.0.9");
    record(&installed, boot, ".order-v4", "");
    record(&installed, "another-boot", "10.0.0.4=c3:eth0", "{}");
    for name in ["lock", "busy", "sweep.json", ".new-4711"] {
        fs::write(installed.run_dir.join("cni/seaway").join(name), "").unwrap();
    }
    let before = files(dir.path());
    let error = installed.remove_plugin().await.unwrap_err().to_string();
    for part in [
        "bin/seaway-cni stays",
        "2 pods",
        "default/web (container c1:eth0)",
        "container c2:eth0",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(files(dir.path()), before);
    let records = installed.run_dir.join("cni/seaway").join(boot);
    for name in ["10.0.0.2=c1:eth0", "fd00::2=c1:eth0", "10.0.0.3=c2:eth0"] {
        fs::remove_file(records.join(name)).unwrap();
    }
    fs::remove_dir_all(installed.run_dir.join("cni/seaway/another-boot")).unwrap();
    assert!(installed.remove_plugin().await.unwrap());
    assert!(!installed.remove_plugin().await.unwrap());
    assert_eq!(files(dir.path()), BTreeMap::new());
    assert!(!installed.run_dir.exists());
}

/// The conf goes first: whatever has kept it, the runtime calls the plugin by it.
#[tokio::test]
async fn case_61_the_plugin_stays_while_a_runtime_is_told_to_call_it() {
    let (_dir, installed) = node();
    let bin = installed.cni_bin_dir.clone().unwrap();
    for dir in [&bin, &installed.cni_conf_dir, &installed.run_dir] {
        fs::create_dir(dir).unwrap();
    }
    let plugin = bin.join("seaway-cni");
    fs::write(&plugin, "plugin").unwrap();
    let stays = async |why: &str| {
        for error in [
            installed.remove_plugin().await.map(drop).unwrap_err(),
            uninstall(installed.clone()).await.unwrap_err(),
        ] {
            let error = format!("{error:#}");
            assert!(error.contains(why), "{error}");
        }
        assert!(plugin.exists());
    };
    let conf = installed.cni_conf_dir.join("05-seaway.conflist");
    fs::write(&conf, "{}").unwrap();
    stays("05-seaway.conflist tells the runtime to call the CNI plugin").await;
    fs::remove_file(&conf).unwrap();
    // What it leads to may come at any time.
    std::os::unix::fs::symlink("/nowhere", &conf).unwrap();
    stays("05-seaway.conflist tells").await;
    fs::remove_file(&conf).unwrap();
    // Whoever listens writes it again within seconds.
    let socket = installed.run_dir.join("proxy.sock");
    let daemon = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    stays("proxy.sock would write the CNI conf again").await;
    // A dead one has left its socket.
    drop(daemon);
    assert!(socket.exists());
    assert!(installed.remove_plugin().await.unwrap());
    assert!(!plugin.exists());
}

#[test]
fn a_foreign_loopback_is_neither_replaced_nor_removed() {
    let (_dir, installed) = node();
    let bin = installed.cni_bin_dir.clone().unwrap();
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("loopback"), "foreign").unwrap();
    assert_eq!(plugin::ensure_loopback(&bin).unwrap(), Loopback::Foreign);
    assert!(!plugin::remove(&bin).unwrap());
    fs::remove_file(bin.join("loopback")).unwrap();
    std::os::unix::fs::symlink("/usr/lib/cni/loopback", bin.join("loopback")).unwrap();
    assert_eq!(plugin::ensure_loopback(&bin).unwrap(), Loopback::Foreign);
    assert!(!plugin::remove(&bin).unwrap());
    assert!(bin.join("loopback").symlink_metadata().is_ok());
}

/// A plugin, as far as an install can see.
fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A child that starts while another thread has a script open for writing keeps it open,
/// and a script that is open for writing cannot be started.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const GOOD: &str = "echo '{\"supportedVersions\":[\"1.0.0\"]}'";

#[tokio::test]
async fn only_a_plugin_that_answers_replaces_another() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (dir, installed) = node();
    let bin = installed.cni_bin_dir.clone().unwrap();
    let source = dir.path().join("source");
    script(&source, GOOD);
    assert!(plugin::install(&source, &bin).await.unwrap());
    assert!(!plugin::install(&source, &bin).await.unwrap());
    let good = files(&bin);
    for (text, expect) in [
        ("exit 3", "exit status: 3"),
        ("echo hello", "hello"),
        ("echo '{\"supportedVersions\":[\"0.2.0\"]}'", "0.2.0"),
    ] {
        script(&source, text);
        let error = plugin::install(&source, &bin)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expect) && error.contains("source"),
            "{error}"
        );
        assert_eq!(files(&bin), good, "{text}");
    }
    fs::write(&source, "\x7fELF of another machine").unwrap();
    let error = plugin::install(&source, &bin).await.unwrap_err();
    assert!(
        error.to_string().contains("start the CNI plugin"),
        "{error}"
    );
    assert_eq!(files(&bin), good);
    // The right content with the wrong mode is not installed.
    script(&source, GOOD);
    fs::set_permissions(bin.join("seaway-cni"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(plugin::install(&source, &bin).await.unwrap());
    assert_eq!(files(&bin), good);
}

#[tokio::test]
async fn errors_name_operation_and_path() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (dir, installed) = node();
    let bin = installed.cni_bin_dir.clone().unwrap();
    let source = dir.path().join("source");
    let error = plugin::install(&source, &bin)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("read the CNI plugin ") && error.ends_with("/source"),
        "{error}"
    );
    script(&source, GOOD);
    fs::write(&bin, "a file where a folder should be").unwrap();
    let error = plugin::install(&source, &bin)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("create directory ") && error.ends_with("/bin"),
        "{error}"
    );
    fs::remove_file(&bin).unwrap();
    fs::create_dir_all(bin.join("seaway-cni/x")).unwrap();
    let error = plugin::install(&source, &bin)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("replace ") && error.ends_with("/bin/seaway-cni"),
        "{error}"
    );
    let denied = files::failed("replace", "/x")(std::io::ErrorKind::PermissionDenied.into());
    assert!(denied.to_string().contains("SELinux"), "{denied}");
}
