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
    let ours = localhost(dir.path(), "0\n");
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
    let ours = localhost(dir.path(), "0\n");
    fs::write(dir.path().join("run"), "no directory").unwrap();
    ours.open();
    assert_eq!(value(&ours), "0\n");
}
