//! A node's folders, and the program on them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use seaway_testbed::bin;

/// Folders as on a node, and two plugins that differ and both work.
pub(crate) struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let plugin = fs::read(bin("seaway-cni")).unwrap();
        for (name, tail) in [("old", &b"old"[..]), ("new", b"new")] {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            // What follows an ELF file's last section is nobody's.
            let mut file = fs::File::create(folder.join("seaway-cni")).unwrap();
            file.write_all(&plugin).unwrap();
            file.write_all(tail).unwrap();
            file.set_permissions(Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Words after the program's name that install `old` or `new`.
    pub(crate) fn install_words(&self, version: &str) -> Vec<String> {
        let source = self.path(version).join("seaway-cni");
        let mut words = self.places("install");
        words.extend(["--source".to_owned(), source.display().to_string()]);
        words
    }

    /// A verb with this node's folders.
    pub(crate) fn places(&self, verb: &str) -> Vec<String> {
        let mut words = vec![verb.to_owned()];
        for (flag, folder) in [
            ("--cni-bin-dir", "bin"),
            ("--cni-conf-dir", "net.d"),
            ("--run-dir", "run"),
            ("--network-manager-dir", "nm"),
            ("--systemd-run-dir", "systemd"),
        ] {
            words.push(flag.to_owned());
            words.push(self.path(folder).display().to_string());
        }
        words
    }

    pub(crate) fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(bin("seaway-proxy"));
        // Nothing of the machine's is to be told of settings: it is not its folder.
        command.env_clear().env("PATH", self.path("tools"));
        command.args(words);
        command
    }

    /// Installs, and gives what was said.
    #[track_caller]
    pub(crate) fn install(&self, version: &str, flags: &[&str]) -> String {
        let mut command = self.command(&self.install_words(version));
        let output = command.args(flags).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    /// The plugin's folder: names, and which of the two plugins a file is.
    pub(crate) fn plugins(&self) -> BTreeMap<String, &'static str> {
        let mut found = BTreeMap::new();
        for name in names(&self.path("bin")) {
            let content = fs::read(self.path("bin").join(&name)).unwrap();
            let is =
                |version: &str| fs::read(self.path(version).join("seaway-cni")).unwrap() == content;
            let what = ["old", "new"].into_iter().find(|version| is(version));
            found.insert(name, what.unwrap_or("neither"));
        }
        found
    }
}

/// What a program has said.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names in a folder, sorted; none where there is no folder.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
