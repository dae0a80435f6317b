//! Rules about files: none is orphaned, none is too long, and what the README names exists.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Longer ones are refused; aim for 100 to 250.
const LONGEST_FILE: usize = 600;

/// Files that a reader, a user or a tool expects at the root.
const REQUIRED: &[&str] = &[
    ".cargo/config.toml",
    ".ci/run",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
];

#[test]
fn required_files_exist() {
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|file| !root().join(file).is_file())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|path| {
            (
                std::fs::read_to_string(&path).unwrap().lines().count(),
                path,
            )
        })
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .collect();
    assert!(long.is_empty(), "over {LONGEST_FILE} lines: {long:#?}");
}

#[test]
fn modules_are_not_called_mod_rs() {
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|path| path.ends_with("mod.rs"))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// A file that nothing compiles is not checked by anything, and rots.
#[test]
fn every_source_file_is_compiled() {
    let mut reached = BTreeSet::new();
    for start in targets() {
        reach(&start, true, &mut reached);
    }
    let orphans: Vec<_> = sources()
        .into_iter()
        .filter(|path| !reached.contains(path))
        .collect();
    assert!(
        orphans.is_empty(),
        "no `mod` and no target names these: {orphans:#?}"
    );
}

#[test]
fn every_library_says_what_it_is_for() {
    for start in targets() {
        let text = std::fs::read_to_string(&start).unwrap();
        let path = start.display();
        assert!(
            text.starts_with("//!") || text.starts_with("#!["),
            "{path} has no module doc"
        );
        if start.ends_with("lib.rs") {
            assert!(
                text.contains("deliberately") || text.contains("does not"),
                "{path} does not say what it deliberately leaves out"
            );
        }
    }
}

#[test]
fn what_the_readme_tells_to_type_exists() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let verbs: BTreeSet<&str> = readme
        .split("cargo xtask ")
        .skip(1)
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_ascii_lowercase() && c != '-')
                .next()
        })
        .filter(|verb| !verb.is_empty())
        .collect();
    assert!(
        verbs.contains("demo") && verbs.contains("test"),
        "the two commands: {verbs:?}"
    );
    let xtask = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    for verb in verbs {
        let (first, rest) = verb.split_at(1);
        let variant = format!("{}{rest}", first.to_uppercase());
        let exists = xtask.lines().any(|line| {
            let line = line.trim_start();
            line.starts_with(&format!("{variant}(")) || line.starts_with(&format!("{variant},"))
        });
        assert!(
            exists,
            "README.md says `cargo xtask {verb}`, which is no verb of xtask"
        );
    }
}

/// Follows `mod` lines from a file. `root` tells how the file finds its children: those of
/// `lib.rs` and `main.rs` are beside it, those of `foo.rs` in `foo/`.
fn reach(file: &Path, is_root: bool, reached: &mut BTreeSet<PathBuf>) {
    if !file.is_file() || !reached.insert(file.to_owned()) {
        return;
    }
    let dir = file.parent().unwrap();
    let children = if is_root {
        dir.to_owned()
    } else {
        dir.join(file.file_stem().unwrap())
    };
    let text = std::fs::read_to_string(file).unwrap();
    let mut path_attribute = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line
            .strip_prefix("#[path = \"")
            .and_then(|rest| rest.split('"').next())
        {
            path_attribute = Some(dir.join(path));
        } else if let Some(name) = module_name(line) {
            let child = path_attribute.take();
            let child = child.unwrap_or_else(|| children.join(format!("{name}.rs")));
            reach(&child, false, reached);
        }
    }
}

/// `foo` of `mod foo;` with whatever visibility.
fn module_name(line: &str) -> Option<&str> {
    let line = line.strip_suffix(';')?;
    let (before, name) = line.split_once("mod ")?;
    let visibility = before.trim();
    let known = visibility.is_empty() || visibility.starts_with("pub");
    (known && name.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(name)
}

/// Where compilation starts: libraries, programs, tests, build scripts; and the kernel
/// programs and fuzz targets, which are workspaces of their own.
fn targets() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for manifest in ["Cargo.toml", "ebpf/programs/Cargo.toml", "fuzz/Cargo.toml"] {
        for package in metadata(manifest)["packages"].as_array().unwrap() {
            for target in package["targets"].as_array().unwrap() {
                found.push(PathBuf::from(target["src_path"].as_str().unwrap()));
            }
        }
    }
    found
}

fn metadata(manifest: &str) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--manifest-path",
        manifest,
    ]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every `.rs` file that is or could be checked in.
fn sources() -> Vec<PathBuf> {
    let mut command = Command::new("git");
    command.args([
        // Whoever it belongs to: only its list of files is read.
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "*.rs",
    ]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).unwrap();
    names
        .lines()
        .map(|name| root().join(name))
        .filter(|path| path.is_file())
        .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
