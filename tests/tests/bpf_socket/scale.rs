//! A large cluster: 10,000 services with 10 endpoints each.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::Protocol::Tcp;

use crate::desired::desired;
use crate::sandbox::wait;
use crate::sandboxed;

const SERVICES: u32 = 10_000;
const ENDPOINTS: u32 = 10;

/// A hundred times what an unoptimised build takes on real hardware, since the suite also
/// runs in emulation: this finds work that grows with the square, benches find the rest.
const FULL_SYNC: Duration = Duration::from_mins(1);
const ONE_CHANGE: Duration = Duration::from_secs(30);
/// DESIGN.md 9: maps take at most 64 MB at this size.
const MAPS_BYTES: u64 = 64_000_000;

sandboxed! {
    fn ten_thousand_services_are_written_and_changed_in_time(sandbox) {
        let frontends: Vec<_> =
            (0..SERVICES).map(|n| format!("{}:80", Ipv4Addr::from(0x0a60_0000 + n))).collect();
        let endpoints: Vec<_> = (0..SERVICES * ENDPOINTS)
            .map(|n| format!("{}:8080", Ipv4Addr::from(0x0af4_0000 + n)))
            .collect();
        let endpoints: Vec<_> = endpoints.iter().map(String::as_str).collect();
        let sets = endpoints.chunks(ENDPOINTS as usize);
        let mut services: Vec<_> =
            frontends.iter().zip(sets).map(|(f, set)| (f.as_str(), Tcp, set)).collect();

        let mut backend = sandbox.open();
        let want = backend.render(&desired(&services));
        let have = wait(backend.read_back()).unwrap();
        let start = Instant::now();
        wait(backend.apply(&have, &want)).unwrap();
        let full = start.elapsed();

        services[5_000].2 = &services[5_000].2[..3];
        let changed = backend.render(&desired(&services));
        let start = Instant::now();
        wait(backend.apply(&want, &changed)).unwrap();
        let one = start.elapsed();

        let bytes = map_bytes();
        eprintln!("full sync {full:?}, one change {one:?}, maps {bytes} bytes");
        assert!(full < FULL_SYNC && one < ONE_CHANGE, "{full:?} {one:?}");
        assert!((1..MAPS_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(wait(backend.read_back()).unwrap(), changed);
    }
}

/// What the kernel charges for all maps that this process has open; bpf(2), fdinfo.
fn map_bytes() -> u64 {
    let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let texts = infos.filter_map(|info| fs::read_to_string(info.path()).ok());
    let maps = texts.filter(|text| text.contains("\nmap_type:"));
    let charged = maps.filter_map(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("memlock:")?.trim().parse::<u64>().ok())
    });
    charged.sum()
}
