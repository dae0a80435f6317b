use std::io::Write as _;
use std::os::unix::fs::symlink;

use super::*;

fn names(path: &Path) -> Vec<String> {
    list(path).unwrap().into_keys().collect()
}

fn text(found: Option<&Found>) -> Option<&str> {
    match found {
        Some(Found::Content(content)) => Some(&content.text),
        _ => None,
    }
}

/// Looks until `name` has `want` in it, by the kernel's word, not by the look that
/// comes anyhow.
async fn becomes(directory: &mut Directory, name: &str, want: Option<&str>) {
    let end = Instant::now() + LOOK / 2;
    let mut listing = Listing::new();
    while Instant::now() < end {
        listing = directory.read().await.unwrap_or_default();
        if text(listing.get(name)) == want {
            return;
        }
        drop(timeout(LOOK / 4, directory.changed()).await);
    }
    panic!("{name} does not become {want:?}: {listing:?}");
}

#[test]
fn manifests_are_taken_and_editors_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let all = [
        "a.yaml",
        "b.yml",
        "c.json",
        ".d.yaml",
        "e.yaml~",
        "f.txt",
        ".g.yaml.swp",
        "#h.yaml#",
        "i.yaml.bak",
        "4913",
    ];
    for name in all {
        fs::write(directory.path().join(name), "").unwrap();
    }
    fs::create_dir(directory.path().join("sub.yaml")).unwrap();
    assert_eq!(names(directory.path()), ["a.yaml", "b.yml", "c.json"]);
}

#[test]
fn what_is_no_text_is_an_error_of_that_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), [0xff]).unwrap();
    let listing = list(directory.path()).unwrap();
    assert!(matches!(listing["a.yaml"], Found::Unreadable(_)));
}

#[test]
fn a_missing_directory_is_named() {
    let missing = Path::new("/no/such");
    let error = Directory::watch(missing).unwrap_err().to_string();
    assert!(error.contains("/no/such"), "{error}");
    let error = list(missing).unwrap_err().to_string();
    assert!(error.contains("/no/such"), "{error}");
}

#[tokio::test]
async fn added_changed_renamed_and_removed_files_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    let mut directory = Directory::watch(folder.path()).unwrap();
    directory.read().await.unwrap();
    fs::write(&path, "1").unwrap();
    becomes(&mut directory, "a.yaml", Some("1")).await;
    fs::write(&path, "2").unwrap();
    becomes(&mut directory, "a.yaml", Some("2")).await;
    let temporary = folder.path().join(".a.yaml.tmp");
    fs::write(&temporary, "3").unwrap();
    fs::rename(&temporary, &path).unwrap();
    becomes(&mut directory, "a.yaml", Some("3")).await;
    fs::remove_file(&path).unwrap();
    becomes(&mut directory, "a.yaml", None).await;
    let again = timeout(QUIET * 2, directory.changed()).await;
    assert!(again.is_err(), "reading does not wake");
}

#[tokio::test]
async fn a_file_that_is_open_for_writing_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "old").unwrap();
    let mut directory = Directory::watch(folder.path()).unwrap();
    becomes(&mut directory, "a.yaml", Some("old")).await;
    for (name, path) in [
        ("a.yaml", path),
        ("new.yaml", folder.path().join("new.yaml")),
    ] {
        let mut file = fs::File::create(&path).unwrap();
        let emptied = directory.read().await.unwrap();
        assert_eq!(emptied[name], Found::Busy, "empty for now");
        file.write_all(b"half").unwrap();
        let half = directory.read().await.unwrap();
        assert_eq!(half[name], Found::Busy, "a part of it");
        drop(file);
        becomes(&mut directory, name, Some("half")).await;
    }
}

#[tokio::test]
async fn links_are_whole_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, "").unwrap();
    let mut directory = Directory::watch(folder.path()).unwrap();
    directory.read().await.unwrap();
    symlink(&target, folder.path().join("a.yaml")).unwrap();
    becomes(&mut directory, "a.yaml", Some("")).await;
    fs::write(&target, "1").unwrap();
    becomes(&mut directory, "a.yaml", Some("1")).await;
    let file = fs::File::create(&target).unwrap();
    let listing = directory.read().await.unwrap();
    assert_eq!(
        listing["a.yaml"],
        Found::Busy,
        "its target is being written"
    );
    drop(file);
    becomes(&mut directory, "a.yaml", Some("")).await;
}

#[tokio::test]
async fn a_link_to_another_folder_is_followed_like_a_config_maps() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for version in ["..1", "..2"] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), version).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let mut directory = Directory::watch(folder.path()).unwrap();
    becomes(&mut directory, "a.yaml", Some("..1")).await;
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    becomes(&mut directory, "a.yaml", Some("..2")).await;
}

#[tokio::test]
async fn a_directory_that_is_replaced_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifests");
    fs::create_dir(&path).unwrap();
    let mut directory = Directory::watch(&path).unwrap();
    directory.read().await.unwrap();
    for (round, text) in ["1", "2"].into_iter().enumerate() {
        fs::rename(&path, folder.path().join(format!("old-{round}"))).unwrap();
        assert!(directory.read().await.is_err(), "it is not there");
        fs::create_dir(&path).unwrap();
        directory.read().await.unwrap();
        fs::write(path.join("a.yaml"), text).unwrap();
        becomes(&mut directory, "a.yaml", Some(text)).await;
        fs::write(path.join("a.yaml"), "more").unwrap();
        becomes(&mut directory, "a.yaml", Some("more")).await;
    }
}
