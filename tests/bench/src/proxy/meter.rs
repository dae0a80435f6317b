//! Memory and CPU time of a proxy and what it starts, which live in a cgroup of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use seaway_testbed::Cgroup2;

/// From one look at the memory to the next.
const EVERY: Duration = Duration::from_millis(20);

/// Looks until it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    dir: PathBuf,
    peak: Arc<Peak>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// In KiB of PSS.
#[derive(Debug, Default)]
struct Peak {
    all: AtomicU64,
    largest: AtomicU64,
    /// While nobody wants to know, looking costs those who are looked at.
    paused: AtomicBool,
}

/// The most memory so far, in MB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Of all programs at one time.
    pub(super) all: f64,
    /// Of one of them.
    pub(super) largest: f64,
}

impl Meter {
    pub(super) fn start(cgroup: &Cgroup2) -> Self {
        let (dir, peak) = (cgroup.path().to_owned(), Arc::<Peak>::default());
        let (stop, stopped) = mpsc::channel();
        let (folder, seen) = (dir.clone(), peak.clone());
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if !seen.paused.load(Ordering::Relaxed) {
                    look(&folder, &seen);
                }
            }
        });
        Self {
            dir,
            peak,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The most since the start, or since this was asked last.
    pub(super) fn memory(&self) -> Memory {
        let megabytes = |peak: &AtomicU64| {
            let kib = peak.swap(0, Ordering::Relaxed);
            // Less than 4 TB, so exact.
            u32::try_from(kib).map_or(f64::INFINITY, f64::from) * 1024.0 / 1e6
        };
        Memory {
            all: megabytes(&self.peak.all),
            largest: megabytes(&self.peak.largest),
        }
    }

    /// Looks no more, or again.
    pub(super) fn pause(&self, paused: bool) {
        self.peak.paused.store(paused, Ordering::Relaxed);
    }

    /// CPU time since the start, of all that ever ran in it.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let path = self.dir.join("cpu.stat");
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        let used = text.lines().find_map(|l| l.strip_prefix("usage_usec "));
        let used = used.context("cpu.stat says nothing of usage")?;
        Ok(Duration::from_micros(
            used.parse().context("read cpu.stat")?,
        ))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// A child has its parent's memory, all of it, until it has become another program. So
/// processes of one program count once, and this one, which is nobody's child, never.
fn look(dir: &Path, peak: &Peak) {
    let listed = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let own = std::env::current_exe().ok();
    let mut programs: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for pid in listed.lines() {
        if let Some((program, kib)) = weigh(pid)
            && Some(&program) != own.as_ref()
        {
            let most = programs.entry(program).or_default();
            *most = kib.max(*most);
        }
    }
    let largest = programs.values().copied().max().unwrap_or(0);
    peak.all
        .fetch_max(programs.values().sum(), Ordering::Relaxed);
    peak.largest.fetch_max(largest, Ordering::Relaxed);
}

/// None of one that has just ended, or that has become another program meanwhile: what was
/// weighed may be its parent's.
fn weigh(pid: &str) -> Option<(PathBuf, u64)> {
    let exe = || std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let program = exe()?;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib = pss(&rollup)?;
    (exe()? == program).then_some((program, kib))
}

fn pss(rollup: &str) -> Option<u64> {
    let rest = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    rest.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let rollup = "55 7ff [rollup]\nRss:      884 kB\nPss:     385 kB\nPss_Dirty: 68 kB\n";
        assert_eq!(pss(rollup), Some(385));
        assert_eq!(pss("Rss: 1 kB\n"), None);
        let own = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(pss(&own).unwrap() > 100);
    }
}
