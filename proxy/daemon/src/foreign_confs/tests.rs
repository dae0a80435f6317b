use std::fs;

use super::*;

#[test]
fn case_61_what_the_runtime_would_load_is_told_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let conf = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    conf("05-seaway.conflist", "{\"name\":\"seaway\"}");
    conf("10-flannel.conflist", "{\"name\":\"cbr0\"}");
    conf("05-other.conflist", "{\"name\":\"other\"}");
    conf("00-broken.conf", "{");
    conf("99-nameless.json", "{}");
    conf("00-off.conflist.seaway-disabled", "{\"name\":\"off\"}");
    conf(".seaway-x.tmp", "{\"name\":\"seaway\"}");
    conf("README", "");
    fs::create_dir(dir.path().join("01-folder.conf")).unwrap();
    let found = find(dir.path()).unwrap();
    let row = |file: &str, network: Option<&str>, first| ForeignConf {
        file: file.to_owned(),
        network: network.map(str::to_owned),
        first,
    };
    assert_eq!(
        found,
        [
            row("00-broken.conf", None, true),
            row("05-other.conflist", Some("other"), true),
            row("10-flannel.conflist", Some("cbr0"), false),
            row("99-nameless.json", None, false),
        ]
    );
}

#[test]
fn no_folder_no_confs() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(find(&dir.path().join("net.d")).unwrap(), []);
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(find(&dir.path().join("file")).is_err());
}
