//! `cargo xtask demo`: shows a Service that answers from pods, and that nothing stays behind.
//!
//! The steps are those that a person would do by hand, on the node fixture of the test bed;
//! each checks what it shows, and the first that fails ends the demo with an error.

mod interrupt;
mod show;

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use seaway_testbed::node::{Config, Flavour, Node, Place, all_answer};
use seaway_testbed::snapshot::Snapshot;

use crate::setup::{self, Scope};
use crate::suites;
use show::{Steps, answers, command, say};

/// The name of everything that the demo makes.
const NAME: &str = "seaway-demo";
/// What it runs.
const MANIFEST: &str = include_str!("demo/web.yaml");
/// A file that says that somebody wanted the node to stay.
const KEPT: &str = "kept";
const WEB: [&str; 2] = ["web-1", "web-2"];

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Leave the node up, and say how to look around
    #[arg(long)]
    keep: bool,
    /// Only remove a node that was left up
    #[arg(long, conflicts_with = "keep")]
    down: bool,
    /// Neither look for missing packages nor build: the programs are beside this one
    #[arg(long)]
    no_setup: bool,
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be set up, or is not as the demo says it is.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run as root: the demo makes namespaces and cgroups of its own");
    }
    let _lock = only_one(&seaway_testbed::cache_dir())?;
    if args.down {
        return Place::remove(NAME).context("remove the demo's node");
    }
    refuse_beside_kept(&Place::folder(NAME))?;
    let mut steps = Steps::default();
    prepare(args, &mut steps)?;
    interrupt::clean_up_on_signals(NAME)?;
    let before = Snapshot::take().context("look at the machine")?;
    let mut node = start(&mut steps)?;
    show_traffic(&mut steps, &node)?;
    show_restart(&mut steps, &mut node)?;
    show_iptables(&mut steps, &mut node)?;
    if args.keep {
        return keep(&mut steps, node);
    }
    steps.next("Take everything down, and compare the machine with what it was before");
    drop(node);
    before.must_be_restored()?;
    say(&format!(
        "links, addresses, routes, rules, namespaces, mounts, BPF objects, cgroups, processes \
         and files: all {} as before",
        before.count()
    ));
    steps.end();
    Ok(())
}

/// Two demos at once would remove each other's node.
fn only_one(cache: &Path) -> Result<File> {
    let path = cache.join("demo.lock");
    std::fs::create_dir_all(cache)?;
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another demo is running; Ctrl-C there ends it"),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("lock {}", path.display()))
        }
    }
}

/// Somebody is looking around in it.
fn refuse_beside_kept(folder: &Path) -> Result<()> {
    if folder.join(KEPT).exists() {
        bail!("a demo was left up by --keep; end it with `cargo xtask demo --down`");
    }
    Ok(())
}

fn prepare(args: &Args, steps: &mut Steps) -> Result<()> {
    steps.next("Make the machine ready, and build");
    if !args.no_setup {
        setup::ensure(Scope::Node)?;
        suites::build_programs()?;
    }
    // What a demo that was killed has left.
    Place::remove(NAME)
}

fn start(steps: &mut Steps) -> Result<Node> {
    steps.next("Start a node: containerd and `seaway-agent standalone --service-proxy=ebpf`");
    let mut node = Node::new(Config {
        name: NAME.to_owned(),
        flavour: Flavour::Debian,
        service_proxy: "ebpf".to_owned(),
    })?;
    say("in namespaces of its own, with an uplink that leads nowhere");
    node.write_manifest("web.yaml", MANIFEST)?;
    node.start_agent()?;
    say(&format!("its manifests: {}", node.manifests().display()));
    ready(&mut node)?;
    show_data_plane(&node, "ebpf")?;
    Ok(node)
}

fn ready(node: &mut Node) -> Result<()> {
    let pods = node.wait_ready(&["client", WEB[0], WEB[1]])?;
    for pod in &pods {
        if pod.phase != "Running" || pod.ip.is_empty() {
            bail!("this pod should be Running and have an address: {pod:?}");
        }
    }
    for what in ["pods", "services"] {
        command(node, &["seaway-agent", "get", what])?;
    }
    Ok(())
}

fn url(node: &Node) -> Result<String> {
    let services = node.services()?;
    let web = services.iter().find(|service| service.name == "web");
    Ok(format!(
        "http://{}/",
        web.context("there is no Service web")?.cluster_ip
    ))
}

/// Shows that the data plane in use is the one that was asked for, and no other.
fn show_data_plane(node: &Node, mode: &str) -> Result<()> {
    let output = |words: &[&str]| -> Result<String> {
        let output = node.run(words)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let url = url(node)?;
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let rules = output(&["iptables-save", "-t", "nat"])?;
    let rules = rules.lines().filter(|rule| rule.contains(address)).count();
    let pinned = output(&["find", "/sys/fs/bpf/seaway", "-type", "f"])?;
    let pinned = pinned.lines().count();
    say(&format!(
        "{rules} nat rules name {address}; {pinned} BPF objects are pinned"
    ));
    if (rules > 0) != (mode == "iptables") || (pinned > 0) != (mode == "ebpf") {
        bail!("this is not what --service-proxy={mode} should do");
    }
    Ok(())
}

fn show_traffic(steps: &mut Steps, node: &Node) -> Result<()> {
    let url = url(node)?;
    steps.next("Ask the Service's address, from the node");
    answers(
        &format!("curl {url}"),
        &all_answer(&WEB, || node.curl(&url))?,
    );
    steps.next("Ask it from the client pod");
    answers(
        &format!("wget -O - {url}"),
        &all_answer(&WEB, || node.wget("client", &url))?,
    );
    Ok(())
}

fn show_restart(steps: &mut Steps, node: &mut Node) -> Result<()> {
    steps.next("Kill the process of web-1; its container is started again");
    let old = node.pod(WEB[0])?;
    node.crash(WEB[0])?;
    let new = node.wait("web-1 to be started again", |node| {
        let now = node.pod(WEB[0])?;
        let again = now.ready && now.restarts > old.restarts && now.containers != old.containers;
        Ok(if again {
            Ok(now)
        } else {
            Err(format!("{now:?}"))
        })
    })?;
    if new.ip != old.ip {
        bail!("the pod should have kept its address {}: {new:?}", old.ip);
    }
    ready(node)?;
    let url = url(node)?;
    answers(
        &format!("curl {url}"),
        &all_answer(&WEB, || node.curl(&url))?,
    );
    Ok(())
}

fn show_iptables(steps: &mut Steps, node: &mut Node) -> Result<()> {
    steps.next("Start the agent again with --service-proxy=iptables; the pods run on");
    let before = node.pods()?;
    node.agent().terminate(seaway_testbed::node::PATIENCE)?;
    node.cleanup_proxy()?;
    node.set_service_proxy("iptables");
    node.start_agent()?;
    ready(node)?;
    let after = node.pods()?;
    if before
        .iter()
        .zip(&after)
        .any(|(old, new)| old.containers != new.containers)
    {
        bail!("the pods should have run on: {before:?}, now {after:?}");
    }
    show_data_plane(node, "iptables")?;
    show_traffic(steps, node)
}

fn keep(steps: &mut Steps, node: Node) -> Result<()> {
    std::fs::write(node.place().dir().join(KEPT), "")?;
    let enter = node.enter_hint();
    let url = url(&node)?;
    let agent = seaway_testbed::bin("seaway-agent");
    steps.next("The node stays up. To look around:");
    for (what, command) in [
        (
            "a shell on it (and in its cgroup, whose processes the eBPF proxy serves)",
            enter.clone(),
        ),
        ("its pods", format!("{enter} {} get pods", agent.display())),
        ("the Service", format!("{enter} curl {url}")),
        ("its rules", format!("{enter} iptables-save")),
        (
            "its manifests (change one)",
            format!("ls {}", node.manifests().display()),
        ),
        (
            "its logs",
            format!("ls {}/*.log", node.place().dir().display()),
        ),
        ("the end", "cargo xtask demo --down".to_owned()),
    ] {
        say(&format!("{what}:\n        {command}"));
    }
    node.keep();
    steps.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

    use super::*;

    #[test]
    fn one_at_a_time() {
        let cache = tempfile::tempdir().unwrap();
        let lock = only_one(cache.path()).unwrap();
        let refused = only_one(cache.path()).unwrap_err().to_string();
        assert!(refused.contains("another demo is running"), "{refused}");
        drop(lock);
        only_one(cache.path()).unwrap();
    }

    #[test]
    fn none_beside_a_kept_one() {
        let folder = tempfile::tempdir().unwrap();
        refuse_beside_kept(&folder.path().join("absent")).unwrap();
        refuse_beside_kept(folder.path()).unwrap();
        std::fs::write(folder.path().join(KEPT), "").unwrap();
        let refused = refuse_beside_kept(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("demo --down"), "{refused}");
    }
}
