//! What the loader finds, refuses and reports.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aya::maps::{HashMap, MapData};
use seaway_ebpf_loader::Error;
use seaway_proxy_core::backend::Retry;
use seaway_proxy_core::desired::Protocol::Tcp;
use seaway_testbed::peer::Protocol as Ask;
use tracing::level_filters::LevelFilter;

use crate::desired::desired;
use crate::sandbox::{ask, counter, pin, sync, try_sync};
use crate::sandboxed;

const VIP: &str = "10.96.0.10:80";
const ENDPOINT: &str = "10.244.1.2:8080";

/// A third above what the largest program takes on 6.18 (772 without logging, 3,574 with).
/// The verifier's own limit is a million.
const INSTRUCTION_BUDGET: u32 = 1_000;
const INSTRUCTION_BUDGET_LOGGING: u32 = 4_800;

sandboxed! {
    fn every_program_loads_within_its_budget(sandbox) {
        for (level, budget) in
            [(LevelFilter::OFF, INSTRUCTION_BUDGET), (LevelFilter::DEBUG, INSTRUCTION_BUDGET_LOGGING)]
        {
            let mut options = sandbox.options();
            options.log_level = level;
            let mut backend = sandbox.try_open(&options).unwrap();
            let stats = backend.program_stats().unwrap();
            assert_eq!(stats.len(), seaway_ebpf_abi::PROGRAMS.len());
            for program in stats {
                let Some(count) = program.verified_instructions else { continue };
                eprintln!("{:14} log={level:5} {count:6} instructions verified", program.name);
                assert!(count <= budget, "{}: {count} > {budget}", program.name);
            }
        }
    }
}

sandboxed! {
    fn pins_of_another_layout_are_replaced(sandbox) {
        let _server = sandbox.serve(Ask::Tcp, &[ENDPOINT]);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &[ENDPOINT])]));
        drop(backend);
        // A map with another value size, and a map where a link should be.
        for (name, place) in [("SERVICES", "maps"), ("connect4", "links")] {
            let path = pin(place).join(name);
            fs::remove_file(&path).unwrap();
            HashMap::<MapData, u64, u32>::create(16, 0).unwrap().pin(&path).unwrap();
        }
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &[ENDPOINT])]));
        assert_eq!(ask(Ask::Tcp, VIP).unwrap().name, ENDPOINT);
        assert_eq!(counter(&backend, "lookup_gave_up"), 0);
    }
}

sandboxed! {
    fn only_one_process_at_a_time(sandbox) {
        let first = sandbox.open();
        let error = sandbox.try_open(&sandbox.options()).unwrap_err();
        assert_eq!(error.to_string(), "lock /sys/fs/bpf/seaway/v1: another process manages these pins");
        drop(first);
        sandbox.open();
    }
}

sandboxed! {
    fn a_missing_bpffs_is_mounted_where_it_belongs_and_nowhere_else(sandbox) {
        nix::mount::umount("/sys/fs/bpf").unwrap();
        drop(sandbox.open());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(mounts.contains(" /sys/fs/bpf bpf "), "{mounts}");

        let mut options = sandbox.options();
        options.bpffs_dir = "/run/pins".into();
        let error = sandbox.try_open(&options).unwrap_err();
        assert!(matches!(error, Error::NotBpffs { .. }), "{error}");
        assert!(error.to_string().contains("/run/pins"), "{error}");
        assert!(!Path::new("/run/pins").exists());
    }
}

sandboxed! {
    fn a_wrong_cgroup_is_named(sandbox) {
        let mut options = sandbox.options();
        for (wrong, text) in [
            ("/run", "use /run as cgroup root: it is not a directory of a cgroup2 file system"),
            ("/run/missing", "open cgroup /run/missing"),
        ] {
            options.cgroup_root = Some(wrong.into());
            assert_eq!(sandbox.try_open(&options).unwrap_err().to_string(), text);
        }
        assert!(!Path::new("/sys/fs/bpf/seaway").exists(), "nothing half done stays");
    }
}

sandboxed! {
    fn without_a_configured_cgroup_the_root_is_found_or_its_absence_told(sandbox) {
        let mut options = sandbox.options();
        options.cgroup_root = None;
        // Opening alone attaches nothing.
        let backend = sandbox.try_open(&options).unwrap();
        let root = seaway_testbed::cgroup2_mount();
        assert!(format!("{backend:?}").contains(&format!("path: {root:?}")), "{backend:?}");
        drop(backend);

        // As in a container: a private cgroup namespace and a mount made in it.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP).unwrap();
        nix::mount::umount2(&root, nix::mount::MntFlags::MNT_DETACH).unwrap();
        let error = sandbox.try_open(&options).unwrap_err();
        assert_eq!(
            error.to_string(),
            "find the cgroup2 root: no cgroup2 file system is mounted"
        );
        fs::create_dir("/run/cgroup").unwrap();
        let (cgroup2, flags) = (Some("cgroup2"), nix::mount::MsFlags::empty());
        nix::mount::mount(cgroup2, "/run/cgroup", cgroup2, flags, None::<&str>).unwrap();
        let error = sandbox.try_open(&options).unwrap_err();
        assert!(matches!(error, Error::NotCgroupRoot { .. }), "{error}");
        assert!(error.to_string().contains("/run/cgroup is only a part"), "{error}");
    }
}

sandboxed! {
    fn what_does_not_fit_is_named_and_the_rest_is_served(sandbox) {
        let _server = sandbox.serve(Ask::Tcp, &[ENDPOINT]);
        let capacity = seaway_ebpf_abi::SERVICES_CAPACITY;
        let first = u32::from(std::net::Ipv4Addr::new(10, 96, 0, 0));
        let frontends: Vec<String> = (first..first + capacity + 2)
            .map(|addr| format!("{}:80", std::net::Ipv4Addr::from(addr)))
            .collect();
        let services: Vec<_> =
            frontends.iter().map(|f| (f.as_str(), Tcp, [ENDPOINT].as_slice())).collect();
        let mut backend = sandbox.open();
        let error = try_sync(&mut backend, &desired(&services)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("program 2 of 65539 changed map entries"), "{text}");
        assert!(text.ends_with("first service 10.97.0.0:80"), "{text}");
        assert_eq!(error.retry(), Retry::Backoff);
        sync(&mut backend, &desired(&services[..1]));
        assert_eq!(ask(Ask::Tcp, &frontends[0]).unwrap().name, ENDPOINT);
    }
}

/// Collects what `tracing` prints.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

sandboxed! {
    fn programs_log_at_debug_level(sandbox) {
        let _server = sandbox.serve(Ask::Tcp, &[ENDPOINT]);
        let mut options = sandbox.options();
        options.log_level = LevelFilter::DEBUG;
        let mut backend = sandbox.try_open(&options).unwrap();
        sync(&mut backend, &desired(&[(VIP, Tcp, &[ENDPOINT])]));
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let logs = backend.take_logs().unwrap();
        let found = tracing::subscriber::with_default(subscriber, || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    ended = logs.run() => panic!("{ended:?}"),
                    found = printed(&lines, "connect 10.96.0.10:80 to 10.244.1.2:8080") => found,
                }
            })
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert!(found, "{text}");
        assert!(text.contains("DEBUG seaway_ebpf: Message from an eBPF program"), "{text}");
    }
}

/// Connects, then waits until the line is there.
async fn printed(lines: &Lines, line: &str) -> bool {
    ask(Ask::Tcp, VIP).unwrap();
    for _ in 0..3000 {
        if String::from_utf8_lossy(&lines.0.lock().unwrap()).contains(line) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

sandboxed! {
    fn programs_are_silent_when_logging_is_off(sandbox) {
        let mut backend = sandbox.open();
        assert!(backend.take_logs().is_none());
    }
}
