//! A store in a folder of its own, and attachments that come and go.

use super::*;

mod addresses;
mod exhaustion;
mod records;
mod sticky;

fn store(dir: &tempfile::TempDir) -> Store {
    Store::of_boot(dir.path(), "seaway", "boot-1")
}

fn pool(range: &str) -> Pools {
    pools(&[range])
}

fn pools(ranges: &[&str]) -> Pools {
    let spec = |range: &&str| RangeSpec::whole(range.parse().unwrap());
    Pools::new(&ranges.iter().map(spec).collect::<Vec<_>>()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key(n: usize) -> Key {
    Key {
        container_id: format!("c{n}"),
        ifname: "eth0".into(),
    }
}

fn record(n: usize) -> Record {
    Record {
        key: key(n),
        netns: "/run/netns/x".into(),
        netns_id: (4, 4_026_531_840),
        host_ifname: "sw0123456789ab".into(),
        pod: None,
        extras: Vec::new(),
        host_ports: Vec::new(),
        ipam: None,
    }
}

fn pod_record(n: usize, pod: &str) -> Record {
    Record {
        pod: Some(pod.to_owned()),
        ..record(n)
    }
}

#[track_caller]
fn add(store: &Store, pool: &Pools, n: usize) -> String {
    let got = store.reserve(pool, &record(n), &[]).unwrap();
    assert!(got.fresh);
    got.addresses[0].to_string()
}
