//! `cargo xtask conformance`: upstream's end-to-end tests on the cluster fixture.
//!
//! The tests are upstream's own program of this version of Kubernetes; which of our parts a
//! cluster has is up to the flags. Beside each result stands what the stock parts do with the
//! same test in the same fixture, as recorded once with `--record`: a test that they fail is
//! none that we can fail.

mod folder;
mod outcome;
mod run;
mod stock;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use seaway_testbed::cluster::{self, Cluster, ClusterOptions, Images, NodeOptions};

use crate::setup::{self, Scope};
use crate::{cache, gotools, suites};
use outcome::Outcome;
use stock::Stock;

/// What the conformance programme counts.
const CONFORMANCE: &str = r"\[Conformance\]";
const NODES: u8 = 2;

/// Well-known, of `k8s.io/api`
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// How many nodes tests want that are about zones
const ZONES_FROM: u8 = 3;

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only tests whose name matches this regular expression
    #[arg(long, default_value = CONFORMANCE)]
    focus: String,
    /// None of those whose name matches this one
    #[arg(long)]
    skip: Option<String>,
    /// Who runs the pods
    #[arg(long, value_enum, default_value_t = Agent::Seaway)]
    agent: Agent,
    /// Who serves Services
    #[arg(long, value_enum, default_value_t = ServiceProxy::Iptables)]
    service_proxy: ServiceProxy,
    /// Who connects pods; where agent and service proxy are stock, bridge, else seaway
    #[arg(long, value_enum)]
    cni: Option<Cni>,
    /// How many nodes; from three on each is a zone of its own, as some tests want
    #[arg(long, default_value_t = NODES, value_parser = clap::value_parser!(u8).range(2..=5))]
    nodes: u8,
    /// How many tests at once; serial ones come after the others
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=64))]
    procs: u16,
    /// Note what the stock parts have done, for later runs to compare with
    #[arg(long)]
    record: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Seaway,
    Kubelet,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceProxy {
    Ebpf,
    Iptables,
    KubeProxy,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Cni {
    Seaway,
    Bridge,
}

impl Args {
    fn cni(&self) -> Cni {
        self.cni.unwrap_or(match (self.agent, self.service_proxy) {
            (Agent::Kubelet, ServiceProxy::KubeProxy) => Cni::Bridge,
            _ => Cni::Seaway,
        })
    }

    /// Nothing of ours is in it.
    fn is_stock(&self) -> bool {
        let parts = (self.agent, self.service_proxy, self.cni());
        parts == (Agent::Kubelet, ServiceProxy::KubeProxy, Cni::Bridge)
    }

    fn node(&self) -> NodeOptions {
        NodeOptions {
            agent: match self.agent {
                Agent::Seaway => cluster::Agent::Seaway,
                Agent::Kubelet => cluster::Agent::Kubelet,
            },
            proxy: match self.service_proxy {
                ServiceProxy::Ebpf => cluster::Proxy::SeawayEbpf,
                ServiceProxy::Iptables => cluster::Proxy::SeawayIptables,
                ServiceProxy::KubeProxy => cluster::Proxy::KubeProxy,
            },
            cni: match self.cni() {
                Cni::Seaway => cluster::Cni::Seaway,
                Cni::Bridge => cluster::Cni::Bridge,
            },
            pod_network: &[],
        }
    }

    /// Such as `kubelet-iptables-seaway`.
    fn label(&self) -> String {
        let cni = self.cni();
        [word(&self.agent), word(&self.service_proxy), word(&cni)].join("-")
    }
}

/// The name of a value as it is typed.
fn word<T: clap::ValueEnum>(value: &T) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be built, or the tests do not come to an end. A test that the stock
/// parts do better with is in the exit code.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "run as root: a node makes namespaces and cgroups of its own"
    );
    if args.record && !args.is_stock() {
        bail!("--record is for stock parts: --agent kubelet --service-proxy kube-proxy");
    }
    setup::ensure(Scope::Cluster)?;
    gotools::ensure_e2e()?;
    suites::build_programs()?;
    let folder = folder::empty(&args.folder_name())?;
    let junit = tests(args, &folder)?;
    let text = fs::read_to_string(&junit).with_context(|| format!("read {}", junit.display()))?;
    let outcomes = outcome::parse(&text)?;
    let baseline = cache::tree().join("docs/conformance-stock.tsv");
    let mut stock = Stock::load(&baseline)?;
    if args.record {
        stock.record(&outcomes);
        stock.save(&baseline)?;
    }
    let table = table::render(&args.label(), &outcomes, &stock);
    print!("{table}");
    folder::keep_table(&folder, &args.words(), &table)?;
    println!("JUnit, table and logs: {}", folder.display());
    ensure!(
        outcomes.iter().any(Outcome::counts),
        "no test of that name has run"
    );
    let worse = outcomes.iter().any(|outcome| stock.does_better(outcome));
    Ok(if worse {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs them on a cluster; gives their report.
fn tests(args: &Args, folder: &Path) -> Result<PathBuf> {
    let signals = run::block_signals()?;
    let mut options = ClusterOptions::of(vec![args.node(); args.nodes.into()]);
    options.images = Images::EndToEnd {
        kubernetes: gotools::kubernetes()?,
    };
    let cluster = Cluster::start(&options)?;
    if args.nodes >= ZONES_FROM {
        make_zones(&cluster)?;
    }
    let ran = run::ginkgo(&cluster, args, folder, &signals);
    // What the parts have said belongs to what the tests say about them.
    run::keep_logs(cluster.dir(), &folder.join("logs"))?;
    let alive = cluster.check_alive();
    ran.and_then(|junit| alive.map(|()| junit))
}

fn make_zones(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        let name = node.name();
        let zone = format!("{ZONE_LABEL}=zone-of-{name}");
        cluster.kubectl(&["label", "node", name, &zone])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn args(line: &str) -> Args {
        let words = line.split_whitespace();
        Cli::parse_from(std::iter::once("conformance").chain(words)).args
    }

    #[test]
    fn the_plugin_is_ours_unless_nothing_else_is() {
        let rows = [
            ("", "seaway-iptables-seaway", false),
            ("--agent kubelet", "kubelet-iptables-seaway", false),
            (
                "--agent kubelet --service-proxy kube-proxy",
                "kubelet-kube-proxy-bridge",
                true,
            ),
            (
                "--agent kubelet --service-proxy kube-proxy --cni seaway",
                "kubelet-kube-proxy-seaway",
                false,
            ),
        ];
        for (line, label, stock) in rows {
            let args = args(line);
            assert_eq!(args.label(), label, "{line}");
            assert_eq!(args.is_stock(), stock, "{line}");
        }
    }

    #[test]
    fn what_is_run_by_default_is_the_programme() {
        let args = args("");
        assert_eq!(args.focus, CONFORMANCE);
        assert_eq!((args.procs, args.nodes), (10, 2));
    }
}
