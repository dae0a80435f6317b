//! Bad input and bad disks: what is said, and what is left.

use std::fs;
use std::process::Command;

use seaway_testbed::{bin, require_root};

use crate::disk::{Disk, names, said};

#[test]
fn bad_usage_exits_64_and_names_the_flag() {
    for (flags, expect) in [
        ("--cni-bin-dir bin", "--cni-bin-dir"),
        ("--take-over-conf /etc/passwd", "--take-over-conf"),
        ("--take-over-conf 05-seaway.conflist", "our own conf"),
        ("--remove --loopback", "--loopback"),
        ("--host-config perhaps", "--host-config"),
    ] {
        let mut command = Command::new(bin("seaway-proxy"));
        command.env_clear().arg("install").args(flags.split(' '));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{flags}: {}", said(&output));
        assert!(said(&output).contains(expect), "{flags}: {}", said(&output));
    }
}

#[track_caller]
fn fails(disk: &Disk, mut command: Command, words: &[&str]) {
    let output = command.output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    assert_eq!(disk.plugins(), [("seaway-cni".to_owned(), "old")].into());
}

#[test]
fn a_plugin_that_does_not_work_here_replaces_none() {
    let disk = Disk::new();
    disk.install("old", &[]);
    let install = || disk.command(&disk.install_words("new"));
    fs::write(disk.path("new/seaway-cni"), "\x7fELF of another machine").unwrap();
    fails(
        &disk,
        install(),
        &[
            "start the CNI plugin",
            "new/seaway-cni",
            "Exec format error",
        ],
    );
    // By another process, so that no child of another thread holds it open for writing.
    let copied = Command::new("cp")
        .arg(bin("seaway-proxy"))
        .arg(disk.path("new/seaway-cni"))
        .status();
    assert!(copied.unwrap().success());
    fails(
        &disk,
        install(),
        &["answers VERSION with", "new/seaway-cni"],
    );
    fs::remove_file(disk.path("new/seaway-cni")).unwrap();
    fails(
        &disk,
        install(),
        &["read the CNI plugin", "new/seaway-cni", "No such file"],
    );
}

/// With a file system of these options in the place of the plugin's folder.
fn on_mount(disk: &Disk, options: &str) -> Command {
    let mut words = disk.install_words("new");
    let (place, proxy) = (disk.path("bin"), bin("seaway-proxy"));
    let place = place.display();
    let script = format!(
        "mount -t tmpfs -o {options} none {place} && cp {old}/seaway-cni {place} && \
         mount -o remount,{options} {place} && \"$@\"; code=$?; ls -A {place} >&2; exit $code",
        old = disk.path("old").display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    words.insert(0, proxy.display().to_string());
    command.args(words);
    command
}

#[test]
fn a_full_or_read_only_disk_is_named_and_keeps_what_it_has() {
    if !require_root() {
        return;
    }
    let disk = Disk::new();
    disk.install("old", &[]);
    let size = fs::metadata(bin("seaway-cni")).unwrap().len() * 3 / 2;
    let full = format!("size={size}");
    fails(
        &disk,
        on_mount(&disk, &full),
        &["write a file into", "/bin", "No space left"],
    );
    let mut command = on_mount(&disk, &full);
    // Not even half a file is left.
    let text = said(&command.output().unwrap());
    assert!(text.ends_with("\nseaway-cni\n"), "{text}");
}

#[test]
fn a_read_only_disk_is_named() {
    if !require_root() {
        return;
    }
    let disk = Disk::new();
    disk.install("old", &[]);
    let place = disk.path("bin");
    let place = place.display();
    let script =
        format!("mount --bind {place} {place} && mount -o remount,bind,ro {place} && \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command
        .arg(bin("seaway-proxy"))
        .args(disk.install_words("new"));
    fails(
        &disk,
        command,
        &["write a file into", "/bin", "Read-only file system"],
    );
    // Nothing is to be written, so nothing is missing.
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command
        .arg(bin("seaway-proxy"))
        .args(disk.install_words("old"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_is_no_folder_is_named() {
    let disk = Disk::new();
    disk.write("bin", "a file");
    let mut command = disk.command(&disk.install_words("new"));
    let output = command.output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("create directory") && text.contains("/bin"),
        "{text}"
    );
    assert_eq!(names(&disk.path("net.d")), [""; 0]);
}
