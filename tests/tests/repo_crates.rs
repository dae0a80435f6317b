//! The crate picture of ARCHITECTURE.md, enforced on what cargo says about the workspace.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Every arrow that may be drawn between our crates. Besides, the test bed's suites may use
/// everything (as dev-dependencies), and `xtask` uses the test bed.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "seaway-agent",
        &["seaway-agent-core", "seaway-agent-cri", "seaway-proxy"],
    ),
    ("seaway-agent-core", &[]),
    ("seaway-agent-cri", &[]),
    (
        "seaway-bench",
        &["seaway-firewall", "seaway-netlink", "seaway-testbed"],
    ),
    ("seaway-cni", &["seaway-firewall", "seaway-netlink"]),
    ("seaway-ebpf-abi", &[]),
    (
        "seaway-ebpf-loader",
        &["seaway-ebpf-abi", "seaway-proxy-core"],
    ),
    ("seaway-firewall", &["seaway-netlink"]),
    ("seaway-netlink", &[]),
    ("seaway-podnet", &["seaway-firewall", "seaway-netlink"]),
    (
        "seaway-proxy",
        &[
            "seaway-ebpf-loader",
            "seaway-firewall",
            "seaway-netlink",
            "seaway-podnet",
            "seaway-proxy-core",
            "seaway-proxy-iptables",
        ],
    ),
    ("seaway-proxy-core", &[]),
    (
        "seaway-proxy-iptables",
        &["seaway-firewall", "seaway-netlink", "seaway-proxy-core"],
    ),
    ("seaway-testbed", &[]),
    ("xtask", &["seaway-testbed"]),
];

/// These decide and compute; they must not be able to touch the world.
const PURE: &[&str] = &["seaway-agent-core", "seaway-ebpf-abi", "seaway-proxy-core"];

/// What a pure crate must not reach, not even through others.
const WORLD: &[&str] = &[
    "aya",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "netlink-sys",
    "nix",
    "rtnetlink",
    "tokio",
    "tonic",
];

/// What the CNI plugin must not reach: it exits in milliseconds.
const HEAVY: &[&str] = &[
    "aya",
    "hyper",
    "kube",
    "kube-client",
    "k8s-openapi",
    "tonic",
];

#[test]
fn arrows_between_crates_are_those_of_the_picture() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in packages(&workspace(&["--no-deps"])) {
        let name = name(&package);
        let Some(arrows) = allowed.get(name.as_str()) else {
            wrong.push(format!("crate {name} is not in the picture"));
            continue;
        };
        for used in ours(&package) {
            if !arrows.contains(&used.as_str()) {
                wrong.push(format!("{name} -> {used} is not in the picture"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}\nchange the picture in the same commit, or the crate"
    );
}

#[test]
fn every_crate_of_the_picture_exists() {
    let names: BTreeSet<String> = packages(&workspace(&["--no-deps"]))
        .iter()
        .map(name)
        .collect();
    let picture: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, picture);
    assert!(root().join("ebpf/programs/Cargo.toml").exists());
}

#[test]
fn pure_crates_cannot_touch_the_world() {
    let graph = Graph::of(&workspace(&[]));
    for name in PURE {
        // A feature that only the loader turns on gives the ABI its trait of aya's.
        let reached = match *name {
            "seaway-ebpf-abi" => graph.required(name),
            _ => graph.reached(name),
        };
        let found: Vec<_> = WORLD
            .iter()
            .filter(|world| reached.contains(**world))
            .collect();
        assert!(found.is_empty(), "{name} reaches {found:?}");
    }
}

#[test]
fn the_cni_plugin_stays_light() {
    let reached = Graph::of(&workspace(&[])).reached("seaway-cni");
    let found: Vec<_> = HEAVY
        .iter()
        .filter(|heavy| reached.contains(**heavy))
        .collect();
    assert!(found.is_empty(), "seaway-cni reaches {found:?}");
}

#[test]
fn xtask_stays_light() {
    let reached = Graph::of(&workspace(&[])).reached("xtask");
    let found: Vec<_> = ["aya", "kube", "tokio"]
        .into_iter()
        .filter(|n| reached.contains(*n))
        .collect();
    assert!(
        found.is_empty(),
        "xtask reaches {found:?}, and is built before everything else"
    );
}

#[test]
fn every_crate_inherits_the_lints() {
    for package in packages(&workspace(&["--no-deps"])) {
        let path = package["manifest_path"].as_str().unwrap().to_owned();
        let manifest = std::fs::read_to_string(&path).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true\n"),
            "{path} does not inherit lints"
        );
    }
}

#[test]
fn a_dependency_has_its_version_in_one_place() {
    for package in packages(&workspace(&["--no-deps"])) {
        let path = package["manifest_path"].as_str().unwrap().to_owned();
        let manifest = std::fs::read_to_string(&path).unwrap();
        let mut section = String::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                line.clone_into(&mut section);
                continue;
            }
            // A crate names itself by its path to turn a feature on for its own tests.
            let inherits = line.contains("workspace = true") || line.contains("path = \".\"");
            let own = section.contains("dependencies") && line.contains(" = ") && !inherits;
            assert!(
                !own,
                "{path}: {line:?} should inherit from [workspace.dependencies]"
            );
        }
    }
}

/// Which package uses which, as cargo has resolved it for this workspace.
struct Graph {
    /// By package name: what it needs at run time.
    uses: BTreeMap<String, BTreeSet<String>>,
    /// By package name: what it names as neither optional nor for tests or builds only.
    requires: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of(metadata: &Value) -> Self {
        let packages = packages(metadata);
        let names: BTreeMap<&str, String> = packages
            .iter()
            .map(|package| (package["id"].as_str().unwrap(), name(package)))
            .collect();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in metadata["resolve"]["nodes"].as_array().unwrap() {
            let user = &names[node["id"].as_str().unwrap()];
            let used = uses.entry(user.clone()).or_default();
            for dependency in node["deps"].as_array().unwrap() {
                let kinds = dependency["dep_kinds"].as_array().unwrap();
                if kinds.iter().any(|kind| kind["kind"].is_null()) {
                    used.insert(names[dependency["pkg"].as_str().unwrap()].clone());
                }
            }
        }
        let requires = packages
            .iter()
            .map(|package| (name(package), required(package)))
            .collect();
        Self { uses, requires }
    }

    /// Everything that a package needs at run time, directly or not.
    fn reached(&self, start: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![start.to_owned()];
        while let Some(package) = waiting.pop() {
            for used in self.uses.get(&package).into_iter().flatten() {
                if reached.insert(used.clone()) {
                    waiting.push(used.clone());
                }
            }
        }
        reached
    }

    fn required(&self, name: &str) -> BTreeSet<String> {
        self.requires[name].clone()
    }
}

fn required(package: &Value) -> BTreeSet<String> {
    let listed = package["dependencies"].as_array().unwrap().iter();
    listed
        .filter(|dependency| dependency["kind"].is_null() && dependency["optional"] == false)
        .map(name)
        .collect()
}

/// Our crates that a crate uses, but for its tests.
fn ours(package: &Value) -> Vec<String> {
    let listed = package["dependencies"].as_array().unwrap().iter();
    listed
        .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
        .map(name)
        .collect()
}

fn name(object: &Value) -> String {
    object["name"].as_str().unwrap().to_owned()
}

fn packages(metadata: &Value) -> Vec<Value> {
    metadata["packages"].as_array().unwrap().clone()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn workspace(args: &[&str]) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    // For this platform only: others' crates may never have been downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command.args(["metadata", "--format-version", "1", "--offline", "--locked"]);
    command.args(["--filter-platform", &platform]);
    let output = command.args(args).current_dir(root()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}
