use super::*;

fn conf() -> NetworkConf {
    NetworkConf {
        pod_cidr: "10.244.1.0/24".parse().unwrap(),
        mtu: 1450,
        data_dir: "/run/seaway/cni".into(),
    }
}

/// A conf file with everything in a folder of its own, and a boot id to change.
fn on_disk() -> (tempfile::TempDir, ConfFile) {
    let dir = tempfile::tempdir().unwrap();
    let mut file = ConfFile::new(&dir.path().join("net.d"), &dir.path().join("run"));
    file.boot_id = dir.path().join("boot_id");
    fs::write(&file.boot_id, "boot-1\n").unwrap();
    (dir, file)
}

#[test]
fn golden() {
    let expect = r#"{
  "cniVersion": "1.0.0",
  "cniVersions": [
    "0.4.0",
    "1.0.0",
    "1.1.0"
  ],
  "name": "seaway",
  "plugins": [
    {
      "capabilities": {
        "bandwidth": true,
        "ipRanges": true,
        "ips": true,
        "mac": true,
        "portMappings": true
      },
      "ipam": {
        "dataDir": "/run/seaway/cni",
        "ranges": [
          {
            "subnet": "10.244.1.0/24"
          }
        ],
        "type": "seaway"
      },
      "mtu": 1450,
      "type": "seaway-cni"
    }
  ]
}
"#;
    assert_eq!(conf().to_json(), expect);
    assert_eq!(conf().reserved(), Ipv4Addr::new(10, 244, 1, 1));
}

#[test]
fn written_once_and_only_on_difference() {
    let (_dir, file) = on_disk();
    assert!(file.write(&conf()).unwrap());
    assert!(!file.write(&conf()).unwrap());
    assert_eq!(fs::read_to_string(file.path()).unwrap(), conf().to_json());
    assert_eq!(
        fs::metadata(file.path()).unwrap().permissions().mode() & 0o777,
        0o644
    );
    let other = NetworkConf {
        mtu: 9000,
        ..conf()
    };
    assert!(file.write(&other).unwrap());
    assert_eq!(fs::read_to_string(file.path()).unwrap(), other.to_json());
    // Nothing is left of the temp files.
    assert_eq!(
        fs::read_dir(file.path().parent().unwrap()).unwrap().count(),
        1
    );
}

#[test]
fn a_conf_of_this_boot_survives_a_restart_of_the_daemon() {
    let (_dir, file) = on_disk();
    file.write(&conf()).unwrap();
    assert!(!file.withdraw_stale().unwrap());
    assert!(file.path().exists());
}

#[test]
fn a_conf_of_an_earlier_boot_is_withdrawn() {
    let (_dir, file) = on_disk();
    file.write(&conf()).unwrap();
    fs::write(&file.boot_id, "boot-2\n").unwrap();
    assert!(file.withdraw_stale().unwrap());
    assert!(!file.path().exists());
    assert!(!file.withdraw_stale().unwrap());
}

#[test]
fn a_conf_without_a_marker_is_withdrawn() {
    // /run is a tmpfs, so after a boot the marker is gone and the conf is not.
    let (_dir, file) = on_disk();
    file.write(&conf()).unwrap();
    fs::remove_file(&file.marker).unwrap();
    assert!(file.withdraw_stale().unwrap());
    assert!(!file.path().exists());
}

#[test]
fn removal_leaves_nothing_and_may_be_repeated() {
    let (dir, file) = on_disk();
    file.write(&conf()).unwrap();
    assert!(file.remove().unwrap());
    assert!(!file.remove().unwrap());
    assert_eq!(fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(dir.path().join("net.d")).unwrap().count(), 0);
}

#[test]
fn a_failed_write_names_operation_and_path() {
    let (dir, file) = on_disk();
    fs::write(dir.path().join("net.d"), "a file where a folder should be").unwrap();
    let error = file.write(&conf()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("read ") || text.starts_with("create directory "),
        "{text}"
    );
    assert!(text.contains("net.d"), "{text}");
}
