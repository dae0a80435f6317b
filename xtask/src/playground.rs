//! `cargo xtask up` and `down`: a cluster, or a standalone node, to play with.
//!
//! The fixtures clean up when they are dropped, so somebody must hold them: a background copy
//! of this program (`hold`) does, until `down` tells it to stop.

mod state;

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use seaway_testbed::cluster::{self, Cluster, ClusterOptions, NodeOptions};
use seaway_testbed::node;

use crate::command::tail;
use crate::setup::{self, Scope};
use crate::{cache, suites};
use state::State;

/// A cluster is up in ten seconds; images may have to be built first.
const UP_LIMIT: Duration = Duration::from_mins(5);
const DOWN_LIMIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct UpArgs {
    /// One node without a control plane, fed from a folder of manifests
    #[arg(long)]
    standalone: bool,
    /// Who runs the pods of the cluster's nodes
    #[arg(long, value_enum, default_value_t = Agent::Seaway, conflicts_with = "standalone")]
    agent: Agent,
    /// Who serves Services
    #[arg(long, value_enum, default_value_t = Proxy::Ebpf)]
    proxy: Proxy,
    /// Who connects the pods of the cluster's nodes
    #[arg(long, value_enum, default_value_t = Cni::Seaway, conflicts_with = "standalone")]
    cni: Cni,
    /// Which addresses the cluster has
    #[arg(long, value_enum, default_value_t = Families::V4, conflicts_with = "standalone")]
    families: Families,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Families {
    V4,
    V6,
    Dual,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Agent {
    Seaway,
    Kubelet,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    Ebpf,
    Iptables,
    #[value(name = "kube-proxy")]
    Stock,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Cni {
    Seaway,
    Bridge,
}

impl UpArgs {
    fn cluster_options(&self) -> ClusterOptions {
        let mut options = ClusterOptions::two(self.node_options());
        options.families = match self.families {
            Families::V4 => cluster::Families::V4,
            Families::V6 => cluster::Families::V6,
            Families::Dual => cluster::Families::Dual,
        };
        options
    }

    fn node_options(&self) -> NodeOptions {
        NodeOptions {
            agent: match self.agent {
                Agent::Seaway => cluster::Agent::Seaway,
                Agent::Kubelet => cluster::Agent::Kubelet,
            },
            proxy: match self.proxy {
                Proxy::Ebpf => cluster::Proxy::SeawayEbpf,
                Proxy::Iptables => cluster::Proxy::SeawayIptables,
                Proxy::Stock => cluster::Proxy::KubeProxy,
            },
            cni: match self.cni {
                Cni::Seaway => cluster::Cni::Seaway,
                Cni::Bridge => cluster::Cni::Bridge,
            },
            pod_network: &[],
        }
    }

    /// The name of a value as it is typed.
    fn word<T: clap::ValueEnum>(value: &T) -> String {
        value
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Starts it in the background and says how to use it.
pub(crate) fn up(args: &UpArgs) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run as root: a node makes namespaces and cgroups of its own");
    }
    if args.standalone && args.proxy == Proxy::Stock {
        bail!("a standalone node has no API server that kube-proxy could follow");
    }
    if let Some(state) = State::load()? {
        bail!(
            "there is one already (process {}):\n{}",
            state.pid,
            state.how_to
        );
    }
    setup::ensure(if args.standalone {
        Scope::Node
    } else {
        Scope::Cluster
    })?;
    suites::build_programs()?;
    let log = log()?;
    let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    // Not by its path: the build may just have put a newer program there.
    let mut hold = Command::new("/proc/self/exe");
    hold.arg("hold")
        .args(["--proxy", &UpArgs::word(&args.proxy)])
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("duplicate the log's descriptor")?)
        .stderr(file)
        // Ctrl-C on this terminal is not for it.
        .process_group(0);
    if args.standalone {
        hold.arg("--standalone");
    } else {
        hold.args([
            "--agent",
            &UpArgs::word(&args.agent),
            "--cni",
            &UpArgs::word(&args.cni),
            "--families",
            &UpArgs::word(&args.families),
        ]);
    }
    let mut child = hold.spawn().context("start the holding process")?;
    println!("starting; its log is {}", log.display());
    let pid = Pid::from_raw(child.id().cast_signed());
    let up = wait(UP_LIMIT, "it to come up", || {
        if let Some(status) = child.try_wait().context("look at the holding process")? {
            bail!("it ended ({status}):\n{}", tail(&log));
        }
        State::load()
    });
    if up.is_err() {
        // It cleans up as soon as it can; it may be gone already.
        kill(pid, Signal::SIGTERM).ok();
    }
    let up = up?;
    println!("{}\nEnd it with `cargo xtask down`.", up.how_to);
    Ok(())
}

/// Stops it and waits until everything is gone.
pub(crate) fn down() -> Result<()> {
    let Some(state) = State::load()? else {
        println!("nothing is up");
        return Ok(());
    };
    let pid = Pid::from_raw(state.pid);
    kill(pid, Signal::SIGTERM).with_context(|| format!("stop process {pid}"))?;
    wait(DOWN_LIMIT, "it to be gone", || {
        Ok(State::load()?.is_none().then_some(()))
    })?;
    println!("everything is gone");
    Ok(())
}

/// Holds it until SIGTERM. This is what runs in the background.
pub(crate) fn hold(args: &UpArgs) -> Result<()> {
    // Before there is a second thread, which would have to block them too.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    signals.thread_block().context("block signals")?;
    let how_to;
    let mut held_cluster = None;
    let mut held_node = None;
    if args.standalone {
        let mut node = node::Node::new(node::Config::new("up", &UpArgs::word(&args.proxy)))?;
        node.start_agent()?;
        how_to = format!(
            "Put manifests into {}\nA shell on the node: {}",
            node.manifests().display(),
            node.enter_hint()
        );
        held_node = Some(node);
    } else {
        let cluster = Cluster::start(&args.cluster_options())?;
        let nodes = cluster.nodes().iter();
        let nodes: Vec<String> = nodes
            .map(|node| format!("{}: {}", node.name(), node.how_to_enter()))
            .collect();
        how_to = format!(
            "A shell with kubectl: {}\n{}\nLogs: {}",
            cluster.how_to_enter(),
            nodes.join("\n"),
            cluster.dir().display()
        );
        held_cluster = Some(cluster);
    }
    let state = State {
        pid: std::process::id().cast_signed(),
        how_to,
    };
    state.save()?;
    let signal = signals.wait().context("wait for a signal")?;
    println!("{signal}: taking everything down");
    drop((held_cluster, held_node));
    State::remove()
}

fn log() -> Result<PathBuf> {
    Ok(cache::dir()?.join("playground.log"))
}

/// Looks again and again, and says every five seconds that it waits.
fn wait<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    let mut said = started;
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if started.elapsed() > limit {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        if said.elapsed() >= crate::command::HEARTBEAT {
            println!("  waiting for {what} ({} s)", started.elapsed().as_secs());
            said = Instant::now();
        }
        thread::park_timeout(LOOK_AGAIN);
    }
}
