//! A node's namespace and some pods' namespaces, for one plugin.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use seaway_netlink::netns::in_namespace;
use seaway_testbed::Netns;

use crate::plugin::Pod;

/// Where a plugin works. Pods' namespaces are used again: to make and remove them costs more
/// than what is measured, and the kernel removes them in the background.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) node: Netns,
    pub(crate) pods: Vec<Netns>,
    dir: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new(pods: usize) -> Result<Self> {
        Ok(Self {
            node: Netns::new("node"),
            pods: (0..pods).map(|_| Netns::new("pod")).collect(),
            dir: tempfile::Builder::new()
                .prefix(&seaway_testbed::unique_name("bench"))
                .tempdir_in(memory())
                .context("make a folder")?,
        })
    }

    /// For records; in memory, as `/run` is on a node.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Names for attachments that nobody has used yet, one for each pod.
    pub(crate) fn attachments(&self) -> Vec<Pod> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pod = |netns: &Netns| Pod {
            // As long as containerd's.
            id: format!("{:064x}", COUNT.fetch_add(1, Ordering::Relaxed)),
            netns: netns.path().to_owned(),
        };
        self.pods.iter().map(pod).collect()
    }

    /// Runs `work` on a thread in the node's namespace.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.node.enter(work)
    }

    /// Runs `work` for all, by so many threads in the node's namespace at once, and tells how
    /// many were done per second. A thread takes the next one when it is done.
    pub(crate) fn at_once(
        &self,
        threads: usize,
        all: &[Pod],
        work: impl Fn(&Pod) -> Result<()> + Sync,
    ) -> Result<f64> {
        let node = self.node.fd();
        let (next, ready) = (AtomicUsize::new(0), Barrier::new(threads));
        let worker = || -> Result<Instant> {
            let inside = || -> Result<Instant> {
                ready.wait();
                let started = Instant::now();
                while let Some(pod) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(pod)?;
                }
                Ok(started)
            };
            in_namespace(node.as_fd(), inside).context("enter the node's namespace")?
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            // By the clock of the first that works: this thread may be let run much later.
            let mut first: Option<Instant> = None;
            for worker in workers {
                let started = worker.join().expect("a worker does not panic")?;
                first = Some(first.map_or(started, |first| first.min(started)));
            }
            let taken = first.context("nobody worked")?.elapsed();
            Ok(crate::stats::exact(all.len()) / taken.as_secs_f64())
        })
    }
}

/// A folder of a file system in memory, where there is one.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    }
}
