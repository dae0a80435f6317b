use std::fs;

use super::*;

fn serving() -> Serving {
    Serving {
        mode: "direct",
        mtu: 1450,
        device: None,
    }
}

/// A state file in a folder of its own, and a boot id to change.
fn on_disk() -> (tempfile::TempDir, StateFile) {
    let dir = tempfile::tempdir().unwrap();
    let mut file = StateFile::new(&dir.path().join("run"));
    file.boot_id = dir.path().join("boot_id");
    fs::write(&file.boot_id, "boot-1\n").unwrap();
    (dir, file)
}

#[test]
fn written_once_and_only_on_difference() {
    let (_dir, file) = on_disk();
    assert!(file.write(&serving()).unwrap());
    assert!(!file.write(&serving()).unwrap());
    let content: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    assert_eq!(
        content,
        json!({ "bootId": "boot-1", "mode": "direct", "mtu": 1450 })
    );
    let overlay = Serving {
        mode: "vxlan",
        device: Some("seaway.vx".to_owned()),
        ..serving()
    };
    assert!(file.write(&overlay).unwrap());
    let content: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    assert_eq!(content["device"], "seaway.vx");
}

#[test]
fn only_the_state_of_this_boot_survives_the_start() {
    let (_dir, file) = on_disk();
    assert!(!file.withdraw_stale().unwrap());
    file.write(&serving()).unwrap();
    assert!(!file.withdraw_stale().unwrap());
    fs::write(&file.boot_id, "boot-2\n").unwrap();
    assert!(file.withdraw_stale().unwrap());
    assert!(!file.path().exists());
    for damaged in ["", "{", "[]", "{\"bootId\": 2}"] {
        fs::write(file.path(), damaged).unwrap();
        assert!(file.withdraw_stale().unwrap(), "{damaged}");
    }
}

#[test]
fn removal_may_be_repeated() {
    let (dir, file) = on_disk();
    file.write(&serving()).unwrap();
    assert!(file.remove().unwrap());
    assert!(!file.remove().unwrap());
    assert_eq!(fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
}
