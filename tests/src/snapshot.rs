//! What there is on the machine, to show that something was left as it was found.
//!
//! It sees the calling process's network and mount namespaces, and what the kernel has only
//! once: BPF objects, cgroups, processes. What belongs to another running test, told by the
//! pid in its name, is left out.

mod bpf;
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{cgroup2_mount, sweep, wait_until};

/// The kinds of things, each with one line per thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<&'static str, BTreeSet<String>>);

/// Kinds whose things end by themselves.
const COMING_AND_GOING: [&str; 5] = [
    "BPF object",
    "cgroup",
    "network namespace",
    "process",
    "temporary folder",
];

/// Folders that the real paths of a node would be in.
const FOLDERS: [&str; 9] = [
    "/etc/cni",
    "/opt/cni",
    "/run/containerd",
    "/run/seaway",
    "/sys/fs/bpf",
    "/var/lib/cni",
    "/var/lib/seaway",
    "/var/lib/seaway-agent",
    "/var/log/pods",
];

impl Snapshot {
    /// Looks at everything.
    ///
    /// # Errors
    /// When a program that shows a kind of thing is there but fails.
    pub fn take() -> Result<Self> {
        let mut kinds = BTreeMap::new();
        kinds.insert("link", shown("ip", &["-o", "link"])?);
        kinds.insert("address", shown("ip", &["-o", "addr"])?);
        kinds.insert(
            "route",
            shown("ip", &["-o", "route", "show", "table", "all"])?,
        );
        kinds.insert("routing rule", shown("ip", &["rule"])?);
        kinds.insert("netfilter rule", rules()?);
        kinds.insert("network namespace", entries(Path::new(sweep::NETNS_DIR)));
        kinds.insert("mount", mounts()?);
        kinds.insert("BPF object", bpf::objects());
        kinds.insert("cgroup", cgroups());
        kinds.insert("process", process::programs());
        kinds.insert(
            "file",
            FOLDERS
                .iter()
                .flat_map(|dir| tree(Path::new(dir)))
                .collect(),
        );
        let temporary = entries(&std::env::temp_dir());
        kinds.insert(
            "temporary folder",
            temporary.into_iter().filter(|n| is_fixture(n)).collect(),
        );
        kinds.insert("sysctl", sysctls());
        Ok(Self(kinds))
    }

    /// How many things it has seen.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Lines for what is there now and was not (`+`), and was there and is not (`-`).
    ///
    /// Of what other users of the machine start and end all the time, only the `+` counts.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (kind, before) in &self.0 {
            let after = &now.0[kind];
            let new = after.difference(before);
            found.extend(new.map(|line| format!("+ {kind}: {line}")));
            if !COMING_AND_GOING.contains(kind) {
                let gone = before.difference(after);
                found.extend(gone.map(|line| format!("- {kind}: {line}")));
            }
        }
        found
    }

    /// Waits until everything is as it was: the kernel takes some things down a little later.
    ///
    /// # Errors
    /// With what differs still after 10 seconds.
    pub fn must_be_restored(&self) -> Result<()> {
        let done = wait_until(
            Duration::from_secs(10),
            "the machine to be as before",
            || {
                let changes = self.changes(&Self::take()?);
                Ok(if changes.is_empty() {
                    Ok(())
                } else {
                    Err(changes.join("\n"))
                })
            },
        );
        if let Err(error) = done {
            bail!("{error:#}\n(another test run at the same time shows up here, too)");
        }
        Ok(())
    }
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(str::to_owned)
        .collect()
}

/// What a program prints; nothing where the program is not installed.
fn shown(program: &str, args: &[&str]) -> Result<BTreeSet<String>> {
    let output = match Command::new(program).args(args).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        output => output?,
    };
    if !output.status.success() {
        bail!(
            "{program} {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // Time limits count down by themselves.
    let timeless = |line: &&str| !line.contains("valid_lft");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .lines()
        .filter(timeless)
        .map(|line| line.trim_end().to_owned())
        .collect())
}

/// The rules of both iptables flavours and both families, and everything in nftables.
fn rules() -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let savers = [
        "iptables-nft-save",
        "ip6tables-nft-save",
        "iptables-legacy-save",
        "ip6tables-legacy-save",
    ];
    for saver in savers {
        let text = shown(saver, &[])?;
        // Comments carry the time, and chain lines carry counters.
        let rules = text.iter().filter(|line| !line.starts_with('#'));
        found.extend(rules.map(|line| {
            let line = line.split(" [").next().unwrap_or(line);
            format!("{saver}: {line}")
        }));
    }
    let listed = shown("nft", &["--stateless", "--handle", "list", "ruleset"])?;
    found.extend(
        listed
            .into_iter()
            .map(|line| format!("nft: {}", line.trim())),
    );
    Ok(found)
}

/// The names in a folder that do not belong to another running test.
fn entries(dir: &Path) -> BTreeSet<String> {
    let found = dir.read_dir().into_iter().flatten().flatten();
    let names = found.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| !is_foreign(name)).collect()
}

/// Whether a name is another test process's.
fn is_foreign(name: &str) -> bool {
    sweep::owner(name).is_some_and(|pid| pid != std::process::id())
}

/// Every mount, but for what is mounted in another test's place.
fn mounts() -> Result<BTreeSet<String>> {
    let mut mounts = lines(&std::fs::read_to_string("/proc/self/mounts")?);
    mounts.retain(|line| !line.split(['/', ' ']).any(is_foreign));
    Ok(mounts)
}

/// Whether a fixture gives such names.
fn is_fixture(name: &str) -> bool {
    name.starts_with(sweep::PREFIX) || name.starts_with("seaway-")
}

/// Every file below a folder.
fn tree(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        found.insert(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(tree(&entry.path()));
        }
    }
    found
}

/// The first level of groups in every hierarchy.
fn cgroups() -> BTreeSet<String> {
    let mut mounts = crate::node::cgroup_v1_mounts();
    mounts.push(cgroup2_mount());
    let mut found = BTreeSet::new();
    for mount in mounts {
        let groups = mount.read_dir().into_iter().flatten().flatten();
        let groups = groups.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = groups.filter_map(|entry| entry.file_name().into_string().ok());
        found.extend(
            names
                .filter(|name| !is_foreign(name))
                .map(|name| format!("{}/{name}", mount.display())),
        );
    }
    found
}

/// The switches that a data plane is tempted to turn.
fn sysctls() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let root = Path::new("/proc/sys/net/ipv4");
    let all = root.join("conf/all");
    let keys = all
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for path in keys.chain([root.join("ip_forward"), root.join("ip_local_port_range")]) {
        // Some are write-only.
        if let Ok(value) = std::fs::read_to_string(&path) {
            found.insert(format!("{} = {}", path.display(), value.trim()));
        }
    }
    found
}
