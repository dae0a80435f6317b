//! Start, restart, change and removal, under traffic.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use aya::maps::MapInfo;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::loaded_programs;
use seaway_ebpf_abi::PROGRAMS;
use seaway_ebpf_loader::Error;
use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::Protocol::Tcp;
use seaway_testbed::peer::{Held, PATIENCE, Protocol as Ask};
use seaway_testbed::wait_until;

use crate::desired::desired;
use crate::sandbox::{ask, parse, pin, pinned, sync, wait};
use crate::sandboxed;

const VIP: &str = "10.96.0.10:80";
const ENDPOINTS: [&str; 3] = ["10.244.1.2:8080", "10.244.1.3:8080", "10.244.1.4:8080"];
const MAPS: [&str; 5] = [
    "COUNTERS",
    "REVERSE_TCP",
    "REVERSE_UDP",
    "SERVICES",
    "SLOTS",
];

/// Link and program number by name.
fn links() -> BTreeMap<String, (u32, u32)> {
    let links = pinned("links").into_iter().map(|name| {
        let link = FdLink::from(PinnedLink::from_pin(pin("links").join(&name)).unwrap());
        let info = link.info().unwrap();
        (name, (info.id(), info.program_id()))
    });
    links.collect()
}

fn maps() -> BTreeMap<String, u32> {
    let maps = pinned("maps").into_iter().map(|name| {
        let id = MapInfo::from_pin(pin("maps").join(&name)).unwrap().id();
        (name, id)
    });
    maps.collect()
}

sandboxed! {
    fn nothing_is_attached_before_the_maps_are_filled(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let mut backend = sandbox.open();
        assert_eq!(pinned("maps"), MAPS);
        assert_eq!(pinned("links"), [""; 0]);
        assert_eq!(ask(Ask::Tcp, VIP).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        assert_eq!(pinned("links"), PROGRAMS);
        ask(Ask::Tcp, VIP).unwrap();
    }
}

sandboxed! {
    fn a_restart_adopts_maps_and_links_and_breaks_no_connection(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let want = desired(&[(VIP, Tcp, &ENDPOINTS)]);
        let mut backend = sandbox.open();
        let before = sync(&mut backend, &want);
        let (old_links, old_maps) = (links(), maps());
        let mut held = Held::open(parse(VIP), PATIENCE).unwrap();

        drop(backend);
        ask(Ask::Tcp, VIP).unwrap();
        held.check().unwrap();

        let mut backend = sandbox.open();
        // Before anything is written:
        assert_eq!(wait(backend.read_back()).unwrap(), before);
        assert_eq!(maps(), old_maps);
        let new_links = links();
        for (name, (link, program)) in &new_links {
            assert_eq!(*link, old_links[name].0, "{name}: the link is kept");
            assert_ne!(*program, old_links[name].1, "{name}: the program is new");
        }
        assert_eq!(new_links.len(), PROGRAMS.len());
        held.check().unwrap();
        assert_eq!(ask(Ask::Tcp, VIP).unwrap().server, parse(VIP));
        assert_eq!(sync(&mut backend, &want), before);
    }
}

sandboxed! {
    fn endpoints_and_programs_change_under_connections_without_a_failure(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut connections = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    ask(Ask::Tcp, VIP).unwrap();
                    connections += 1;
                }
                connections
            });
            for round in 0..400 {
                let first = round % ENDPOINTS.len();
                sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS[first..])]));
                if round % 100 == 99 {
                    drop(backend);
                    backend = sandbox.open();
                }
            }
            stop.store(true, Ordering::Relaxed);
            let connections = client.join().unwrap();
            eprintln!("{connections} connections, none failed");
            assert!(connections > 100, "{connections} connections are too few to prove anything");
        });
    }
}

sandboxed! {
    fn removal_leaves_nothing(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        let programs: Vec<u32> = links().values().map(|(_, program)| *program).collect();
        wait(backend.remove_all()).unwrap();
        assert!(!Path::new("/sys/fs/bpf/seaway").exists());
        assert_eq!(ask(Ask::Tcp, VIP).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
        let want = backend.render(&desired(&[]));
        let error = wait(backend.apply(&want, &want)).unwrap_err();
        assert!(error.to_string().contains("has been removed"), "{error}");
        wait(backend.remove_all()).unwrap();
        drop(backend);
        gone(&programs);
    }
}

sandboxed! {
    fn leftovers_of_a_dead_process_can_be_removed(sandbox) {
        let mut backend = sandbox.open();
        sync(&mut backend, &desired(&[(VIP, Tcp, &ENDPOINTS)]));
        let programs: Vec<u32> = links().values().map(|(_, program)| *program).collect();
        let dir = sandbox.options().bpffs_dir;
        assert!(matches!(seaway_ebpf_loader::remove_all(&dir), Err(Error::Locked { .. })));
        drop(backend);
        assert!(seaway_ebpf_loader::remove_all(&dir).unwrap());
        assert!(!dir.exists());
        gone(&programs);
        assert!(!seaway_ebpf_loader::remove_all(&dir).unwrap());
    }
}

sandboxed! {
    fn links_that_others_remove_come_back(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let want = desired(&[(VIP, Tcp, &ENDPOINTS)]);
        let mut backend = sandbox.open();
        let complete = sync(&mut backend, &want);
        std::fs::remove_file(pin("links/connect4")).unwrap();
        let damaged = wait(backend.read_back()).unwrap();
        assert_ne!(damaged, complete);
        assert!(!damaged.to_string().contains("link connect4\n"), "{damaged}");
        sync(&mut backend, &want);
        assert_eq!(ask(Ask::Tcp, VIP).unwrap().server, parse(VIP));

        // As after a crash between filling the maps and attaching.
        drop(backend);
        for name in PROGRAMS {
            std::fs::remove_file(pin("links").join(name)).unwrap();
        }
        let mut backend = sandbox.open();
        assert_eq!(pinned("links"), [""; 0]);
        sync(&mut backend, &want);
        assert_eq!(pinned("links"), PROGRAMS);
        ask(Ask::Tcp, VIP).unwrap();
    }
}

/// The kernel frees programs in the background.
#[track_caller]
fn gone(programs: &[u32]) {
    wait_until(Duration::from_mins(1), "programs to go", || {
        let left = loaded_programs()
            .filter_map(Result::ok)
            .filter(|p| programs.contains(&p.id()));
        let left: Vec<_> = left
            .map(|p| p.name_as_str().unwrap_or("?").to_owned())
            .collect();
        Ok(if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        })
    })
    .unwrap();
}

sandboxed! {
    fn links_follow_to_another_cgroup(sandbox) {
        let _servers = sandbox.serve(Ask::Tcp, &ENDPOINTS);
        let want = desired(&[(VIP, Tcp, &ENDPOINTS)]);
        let elsewhere = sandbox.cgroup.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        let mut options = sandbox.options();
        options.cgroup_root = Some(elsewhere.clone());
        let mut backend = sandbox.try_open(&options).unwrap();
        sync(&mut backend, &want);
        let error = ask(Ask::Tcp, VIP).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "this process is not in there");
        drop(backend);

        drop(sandbox.open());
        ask(Ask::Tcp, VIP).unwrap();
        assert_eq!(pinned("links"), PROGRAMS);

        // A cgroup that vanishes takes its links' attachments along.
        drop(sandbox.try_open(&options).unwrap());
        std::fs::remove_dir(&elsewhere).unwrap();
        drop(sandbox.open());
        ask(Ask::Tcp, VIP).unwrap();
    }
}
