#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn localhost(dir: &Path, value: &str) -> Localhost {
    let sysctl = dir.join("sysctl");
    fs::write(&sysctl, value).unwrap();
    Localhost {
        sysctl,
        ..Localhost::new(&dir.join("run"))
    }
}

fn value(localhost: &Localhost) -> String {
    fs::read_to_string(&localhost.sysctl).unwrap()
}

#[test]
fn only_what_we_set_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut ours = localhost(dir.path(), "0\n");
    ours.close().unwrap();
    assert_eq!(value(&ours), "0\n");
    ours.open();
    assert_eq!(value(&ours), "1");
    // Of a later run.
    ours.open();
    ours.close().unwrap();
    assert_eq!(value(&ours), "0");
    fs::write(&ours.sysctl, "1\n").unwrap();
    ours.open();
    ours.close().unwrap();
    assert_eq!(value(&ours), "1\n", "the operator's");
}

#[test]
fn what_cannot_be_remembered_is_not_set() {
    let dir = tempfile::tempdir().unwrap();
    let mut ours = localhost(dir.path(), "0\n");
    fs::write(dir.path().join("run"), "no directory").unwrap();
    ours.open();
    assert_eq!(value(&ours), "0\n");
}

/// As where /proc/sys is mounted read-only.
fn read_only(dir: &Path, value: &str) -> Localhost {
    Localhost {
        write: |_, _| Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        ..localhost(dir, value)
    }
}

#[test]
fn what_cannot_be_set_leaves_nothing_to_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut ours = read_only(dir.path(), "0\n");
    for _ in 0..2 {
        ours.open();
        assert!(!ours.memory.exists());
    }
    assert!(!ours.close().unwrap(), "there is nothing to undo");
    // Not even what an earlier version has remembered all the same.
    fs::write(&ours.memory, "").unwrap();
    assert!(ours.close().unwrap());
    assert!(!ours.memory.exists());
    assert!(!ours.close().unwrap());
}

#[test]
fn what_cannot_be_set_back_is_remembered_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let mut ours = localhost(dir.path(), "0\n");
    ours.open();
    let stuck = read_only(dir.path(), "1\n");
    for _ in 0..2 {
        let error = stuck.close().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
    assert!(ours.close().unwrap());
    assert_eq!(value(&ours), "0");
    assert!(!ours.memory.exists());
}
