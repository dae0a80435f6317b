//! What is installed about sysctls, as the programs read it that set them: systemd's, which udev
//! runs for each new link, and procps'.

use std::path::Path;
use std::process::Command;

use seaway_testbed::{Netns, require_root, skip};

use crate::cni;
use crate::disk::{Disk, names};

const SYSTEMD: &str = "/usr/lib/systemd/systemd-sysctl";
/// Named to come late.
const THEIRS: &str = "sysctl.d/zz-hardening.conf";
/// As an administrator or a distribution may have it.
const PATTERNS: &str = "\
net.ipv4.conf.*.rp_filter = 1
-net.ipv4.conf.all.rp_filter
net.ipv4.conf.*.forwarding = 0
net.ipv4.conf.*.send_redirects = 1
net.ipv6.conf.*.accept_ra = 1
";
const KEYS: [&str; 4] = [
    "ipv4/conf/IF/rp_filter",
    "ipv4/conf/IF/forwarding",
    "ipv4/conf/IF/send_redirects",
    "ipv6/conf/IF/accept_ra",
];

fn values(netns: &Netns, link: &str) -> [String; 4] {
    KEYS.map(|key| {
        let path = format!("/proc/sys/net/{}", key.replace("IF", link));
        netns.must_run(&["cat", path.as_str()]).trim().to_owned()
    })
}

/// Command lines that set what is in the files named after them: for all links, and for one as
/// udev does it (99-systemd.rules).
fn programs(link: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    if procps_knows_patterns() {
        all.push("sysctl -q -p".to_owned());
    }
    if Path::new(SYSTEMD).exists() {
        let of = |family: &str| format!("--prefix=/net/{family}/conf/{link}");
        let (v4, v6) = (of("ipv4"), of("ipv6"));
        all.extend([SYSTEMD.to_owned(), format!("{SYSTEMD} {v4} {v6}")]);
    }
    let words = |line: &String| line.split(' ').map(str::to_owned).collect();
    all.iter().map(words).collect()
}

/// Since its version 4, as it does lines without a value.
fn procps_knows_patterns() -> bool {
    let Ok(output) = Command::new("sysctl").arg("-V").output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.trim().rsplit(' ').next().unwrap_or_default();
    let major = version.split('.').next().unwrap_or_default().parse();
    major.is_ok_and(|major: u32| major >= 4)
}

/// Those of sysctl.d in the order in which they are read: by their names (sysctl.d(5)).
fn files(disk: &Disk) -> Vec<String> {
    let dir = disk.path("sysctl.d");
    let names = names(&dir).into_iter();
    names
        .map(|name| dir.join(name).display().to_string())
        .collect()
}

#[test]
fn patterns_for_all_links_spare_those_of_pods() {
    if !require_root() {
        return;
    }
    let disk = Disk::new();
    disk.write("systemd/system/ctrl", "");
    disk.install("new", &[]);
    let installed = files(&disk);
    disk.write(THEIRS, PATTERNS);
    let (theirs, all) = ([disk.path(THEIRS).display().to_string()], files(&disk));
    assert_eq!((installed.len(), all.len()), (1, 2), "{all:?}");

    let (node, pod) = (cni::Node::new("10.244.1.0/24"), Netns::new("pod"));
    node.netns.sysctl("ipv4/conf/default/rp_filter", "1");
    node.netns.ip("link add swp1 type veth peer name swp2");
    let added = node.add("c1", &pod);
    let link = added["interfaces"][0]["name"].as_str().unwrap();
    let as_added = values(&node.netns, link);
    assert_eq!(as_added, ["2", "1", "0", "0"]);
    let programs = programs(link);
    if programs.is_empty() {
        skip("needs procps 4 or systemd-sysctl");
    }
    for program in programs {
        let run = |files: &[String]| {
            let words = program.iter().chain(files);
            node.netns.must_run(&words.collect::<Vec<_>>());
        };
        run(&theirs);
        assert_eq!(values(&node.netns, link), ["1", "0", "1", "1"]);
        run(&all);
        assert_eq!(values(&node.netns, link), as_added, "{program:?}");
        let for_all = !program.iter().any(|word| word.contains("--prefix"));
        if for_all {
            // Not ours, though its name begins like ours.
            let other = values(&node.netns, "swp1");
            assert_eq!(other, ["1", "0", "1", "1"], "{program:?}");
        }
    }
}
