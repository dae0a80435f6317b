use std::os::unix::fs::PermissionsExt;

use super::*;

fn conf() -> NetworkConf {
    NetworkConf {
        pod_cidrs: ["10.244.1.0/24", "10.245.1.0/24", "fd00:10:1::/64"]
            .map(|cidr| cidr.parse().unwrap())
            .to_vec(),
        mtu: 1450,
        data_dir: "/run/seaway/cni".into(),
        state_file: "/run/seaway/pod-network.json".into(),
        sticky: false,
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
        "aliases": true,
        "bandwidth": true,
        "dns": true,
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
          },
          {
            "subnet": "10.245.1.0/24"
          },
          {
            "subnet": "fd00:10:1::/64"
          }
        ],
        "type": "seaway"
      },
      "mtu": 1450,
      "podNetworkState": "/run/seaway/pod-network.json",
      "type": "seaway-cni"
    }
  ]
}
"#;
    assert_eq!(conf().to_json(), expect);
}

#[test]
fn addresses_stick_where_that_is_wanted_and_the_conf_changes_with_it() {
    let ipam = |conf: &NetworkConf| {
        let text: Value = serde_json::from_str(&conf.to_json()).unwrap();
        text["plugins"][0]["ipam"].clone()
    };
    let wanted = NetworkConf {
        sticky: true,
        ..conf()
    };
    let mut expect = ipam(&conf());
    assert_eq!(expect.get("sticky"), None);
    expect["sticky"] = json!(true);
    assert_eq!(ipam(&wanted), expect);
    let (_dir, file) = on_disk();
    file.write(&conf()).unwrap();
    assert!(file.write(&wanted).unwrap());
    assert_eq!(fs::read_to_string(file.path()).unwrap(), wanted.to_json());
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
fn what_a_killed_daemon_left_half_written_goes_at_the_start() {
    let (dir, file) = on_disk();
    file.write(&conf()).unwrap();
    for name in [
        "net.d/.seaway-abc.tmp",
        "run/.seaway-def.tmp",
        "net.d/.foreign.tmp",
    ] {
        fs::write(dir.path().join(name), "{").unwrap();
    }
    assert!(!file.withdraw_stale().unwrap());
    let names = |dir: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(dir.path().join("net.d")),
        [".foreign.tmp", "05-seaway.conflist"]
    );
    assert_eq!(names(dir.path().join("run")), ["cni-conf.boot-id"]);
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

#[test]
fn the_same_failure_has_the_same_words_and_names_the_target() {
    // Where nobody can make files, and where what is there cannot be replaced by one.
    let (_dir, file) = on_disk();
    fs::create_dir_all(file.path().join("x")).unwrap();
    for path in [Path::new("/proc/self/x.conflist"), file.path()] {
        let fail = || {
            let error = replace(path, "{}").unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            (error.to_string(), source)
        };
        let (what, why) = fail();
        assert_eq!(what, format!("write {}", path.display()));
        assert!(!why.contains(".tmp"), "{why}");
        assert_eq!(fail(), (what, why));
    }
    let left = fs::read_dir(folder(file.path())).unwrap().count();
    assert_eq!(left, 1);
}
