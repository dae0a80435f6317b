#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// A kernel of files.
struct Kernel {
    dir: TempDir,
    knobs: Knobs,
}

impl Kernel {
    fn new(settings: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        let knobs = Knobs {
            sysctls: dir.path().to_owned(),
            buckets: dir.path().join("hashsize"),
        };
        for (name, value) in settings {
            fs::write(dir.path().join(name), format!("{value}\n")).unwrap();
        }
        Self { dir, knobs }
    }

    fn usual() -> Self {
        Self::new(&[
            (MAX, "65536"),
            ("hashsize", "16384"),
            (ESTABLISHED, "432000"),
            (CLOSE_WAIT, "60"),
            (BE_LIBERAL, "0"),
            (UDP, "30"),
            (UDP_STREAM, "120"),
        ])
    }

    fn get(&self, name: &str) -> u64 {
        read(&self.dir.path().join(name)).unwrap()
    }
}

#[test]
fn the_number_of_connections_grows_with_the_cpus() {
    let default = ConntrackConfig::default();
    for (cpus, max_per_core, min, expect) in [
        (64, 32_768, 131_072, Some(1_048_576)),
        (33, 32_768, 131_072, Some(1_048_576)),
        (32, 32_768, 131_072, Some(1_048_576)),
        (8, 32_768, 131_072, Some(262_144)),
        (1, 32_768, 131_072, Some(131_072)),
        // A minimum above the bound counts as long as the bound is not reached.
        (1, 32_768, 2_000_000, Some(2_000_000)),
        (64, 32_768, 2_000_000, Some(1_048_576)),
        (8, 0, 131_072, None),
    ] {
        let config = ConntrackConfig {
            max_per_core,
            min,
            ..default.clone()
        };
        assert_eq!(most_connections(&config, cpus), expect, "{cpus} {config:?}");
    }
    // What is not said is kube-proxy's.
    assert_eq!(most_connections(&default, 8), Some(262_144));
}

#[test]
fn conntrack_is_set_as_kube_proxy_does() {
    let kernel = Kernel::usual();
    let applied = kernel.knobs.apply_on(&ConntrackConfig::default(), 8);
    assert_eq!(applied, Applied::All);
    for (name, value) in [
        (MAX, 262_144),
        ("hashsize", 65_536),
        (ESTABLISHED, 86_400),
        (CLOSE_WAIT, 3_600),
        (BE_LIBERAL, 0),
        (UDP, 30),
        (UDP_STREAM, 120),
    ] {
        assert_eq!(kernel.get(name), value, "{name}");
    }
    let config = ConntrackConfig {
        tcp_be_liberal: true,
        udp_timeout: Duration::from_secs(10),
        udp_stream_timeout: Duration::from_secs(200),
        ..ConntrackConfig::default()
    };
    kernel.knobs.apply_on(&config, 8);
    let set = [BE_LIBERAL, UDP, UDP_STREAM].map(|name| kernel.get(name));
    assert_eq!(set, [1, 10, 200]);
}

#[test]
fn zero_leaves_conntrack_alone() {
    let kernel = Kernel::usual();
    let config = ConntrackConfig {
        max_per_core: 0,
        tcp_established_timeout: Duration::ZERO,
        tcp_close_wait_timeout: Duration::ZERO,
        ..ConntrackConfig::default()
    };
    // Without a minimum of its own either: that is for what is computed.
    assert_eq!(kernel.knobs.apply_on(&config, 8), Applied::All);
    let left = [MAX, "hashsize", ESTABLISHED, CLOSE_WAIT].map(|name| kernel.get(name));
    assert_eq!(left, [65_536, 16_384, 432_000, 60]);
}

#[test]
fn a_large_hash_table_stays_large() {
    let kernel = Kernel::new(&[(MAX, "262144"), ("hashsize", "500000")]);
    kernel.knobs.apply_on(&ConntrackConfig::default(), 8);
    assert_eq!(kernel.get("hashsize"), 500_000);
}

#[test]
fn what_is_right_is_not_written() {
    let kernel = Kernel::new(&[(MAX, "5")]);
    let path = kernel.dir.path().join(MAX);
    assert_eq!(set(&path, 5, |have| have != 5).unwrap(), None);
    // As the kernel or this test's setup left it, line feed included.
    assert_eq!(fs::read_to_string(&path).unwrap(), "5\n");
    assert_eq!(set(&path, 6, |have| have != 6).unwrap(), Some(5));
}

#[test]
fn a_setting_that_cannot_be_had_does_not_keep_others_from_being_set() {
    let kernel = Kernel::new(&[(MAX, "garbage"), (CLOSE_WAIT, "60")]);
    let applied = kernel.knobs.apply_on(&ConntrackConfig::default(), 8);
    // One is not there at all.
    assert_eq!(applied, Applied::NotLoaded);
    assert_eq!(kernel.get(CLOSE_WAIT), 3_600);
}

#[tokio::test]
async fn what_is_not_loaded_yet_is_set_after_the_first_sync() {
    let kernel = Kernel::new(&[]);
    let config = ConntrackConfig::default();
    let before = kernel.knobs.apply(&config);
    assert_eq!(before, Applied::NotLoaded);
    fs::write(kernel.dir.path().join(CLOSE_WAIT), "60").unwrap();
    let (synced, receiver) = watch::channel(false);
    let stop = CancellationToken::new();
    let later = apply_when_loaded(before, kernel.knobs.clone(), config, receiver, stop);
    let later = tokio::spawn(later);
    synced.send_replace(true);
    later.await.unwrap();
    assert_eq!(kernel.get(CLOSE_WAIT), 3_600);
}

#[test]
fn a_liberal_kernel_is_known() {
    for (value, expect) in [("1", true), ("2", true), ("0", false), ("x", false)] {
        let kernel = Kernel::new(&[(BE_LIBERAL, value)]);
        assert_eq!(kernel.knobs.be_liberal(), expect, "{value}");
    }
    assert!(!Kernel::new(&[]).knobs.be_liberal());
}
