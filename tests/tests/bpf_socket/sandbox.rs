//! A place where nothing but the test is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use seaway_ebpf_loader::{EbpfBackend, Error, Options, Rendered};
use seaway_proxy_core::backend::{Backend as _, BackendError};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::sync_once;
use seaway_testbed::peer::{self, Answer, Protocol, Server};
use seaway_testbed::{Cgroup2, Join, Netns, PrivateMounts, require_root};
use tracing::level_filters::LevelFilter;

/// Set in the process that runs inside: path of its cgroup.
const INSIDE: &str = "SEAWAY_TEST_BPF_CGROUP";

/// Where the proxy pins by default.
pub(crate) const PINS: &str = "/sys/fs/bpf/seaway/v1";

/// Addresses of two pods, both on `lo`.
pub(crate) const PODS: [&str; 3] = ["10.244.1.2", "10.244.1.3", "10.244.1.4"];

/// What a test body may use. Everything goes with its process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The cgroup that the test runs in.
    pub(crate) cgroup: PathBuf,
}

/// Runs `body` in a process inside a new namespace, mount and cgroup.
#[track_caller]
pub(crate) fn run(name: &str, body: impl FnOnce(&Sandbox)) {
    if let Some(cgroup) = env::var_os(INSIDE) {
        return body(&Sandbox::prepare(cgroup.into()));
    }
    if !require_root() {
        return;
    }
    let (_crate, name) = name.split_once("::").unwrap();
    let hint = name.rsplit("::").next().unwrap();
    let hint = &hint[..hint.len().min(12)];
    let (netns, mounts, cgroup) = (Netns::new(hint), PrivateMounts::new(), Cgroup2::new(hint));
    let output = Join::new()
        .netns(&netns)
        .mounts(&mounts)
        .cgroup(&cgroup)
        .command(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(INSIDE, cgroup.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    eprint!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{name} failed in its sandbox, see above"
    );
    assert!(stdout.contains("1 passed"), "{name} ran in its sandbox");
}

impl Sandbox {
    fn prepare(cgroup: PathBuf) -> Self {
        for pod in PODS {
            let address = format!("{pod}/32");
            let ip = Command::new("ip")
                .args(["address", "add", &address, "dev", "lo"])
                .status();
            assert!(ip.unwrap().success());
        }
        Self { cgroup }
    }

    /// Options for this place; nothing is logged.
    pub(crate) fn options(&self) -> Options {
        Options {
            bpffs_dir: PINS.into(),
            cgroup_root: Some(self.cgroup.clone()),
            log_level: LevelFilter::OFF,
        }
    }

    /// Opens the data plane as a new process would.
    #[track_caller]
    pub(crate) fn open(&self) -> EbpfBackend {
        self.try_open(&self.options())
            .unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)))
    }

    #[expect(clippy::unused_self, reason = "only inside a sandbox")]
    pub(crate) fn try_open(&self, options: &Options) -> Result<EbpfBackend, Error> {
        EbpfBackend::open(options)
    }

    /// A server at each address, named by it.
    #[expect(clippy::unused_self, reason = "only inside a sandbox")]
    pub(crate) fn serve(&self, protocol: Protocol, addresses: &[&str]) -> Vec<Server> {
        let serve = |address: &&str| Server::start(protocol, parse(address), address).unwrap();
        addresses.iter().map(serve).collect()
    }
}

/// A place in the sandbox's directory of pins.
pub(crate) fn pin(name: &str) -> PathBuf {
    Path::new(PINS).join(name)
}

/// Names in a directory of pins, sorted; empty when it is not there.
pub(crate) fn pinned(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(pin(dir)).into_iter().flatten();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(crate) fn parse(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

pub(crate) fn ask(protocol: Protocol, address: &str) -> std::io::Result<Answer> {
    peer::ask(protocol, parse(address), peer::PATIENCE)
}

/// Waits for a future of a backend.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Does what a round of the sync loop does.
#[track_caller]
pub(crate) fn sync(backend: &mut EbpfBackend, desired: &DesiredState) -> Rendered {
    try_sync(backend, desired)
        .unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)))
}

pub(crate) fn try_sync(
    backend: &mut EbpfBackend,
    desired: &DesiredState,
) -> Result<Rendered, BackendError> {
    let report = wait(sync_once(backend, None, desired)).map_err(|failed| failed.error)?;
    let now = wait(backend.read_back())?;
    assert_eq!(now, report.rendered, "the kernel holds what was rendered");
    Ok(now)
}

/// One counter of the programs.
pub(crate) fn counter(backend: &EbpfBackend, name: &str) -> u64 {
    let counters = backend.counters().unwrap();
    counters
        .iter()
        .find(|(n, _)| *n == name)
        .unwrap_or_else(|| panic!("no counter {name}"))
        .1
}
