//! Kernel settings of the two ends of a pod's veth.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use seaway_netlink::{Netns, netns};

use crate::error::Error;
use crate::ipam::Pools;
use crate::plan::is_host_ifname;

mod living;
#[cfg(test)]
mod tests;

pub(crate) use living::{HostEnds, Setting};

const ROOT: &str = "/proc/sys/net";
const IPV6_CONF: &str = "/proc/sys/net/ipv6/conf";
/// Any 32-bit number with its sign and the end of the line.
const LONGEST: usize = 12;

/// Sets what the host's end needs, before it is brought up. Nothing has to be
/// written where the value is right already, which serves a /proc/sys that is
/// mounted read-only.
///
/// `from_loopback`: packets from 127.0.0.0/8 may leave by it, which the
/// firewall makes safe.
pub(crate) fn prepare_host_end(ifname: &str, v6: bool, from_loopback: bool) -> Result<(), Error> {
    // The pods' packets are forwarded, and so are the answers, which come in
    // by other interfaces.
    ensure(&path("ipv4", "ip_forward"), "1")?;
    let v4 = |key: &str| path("ipv4/conf", &format!("{ifname}/{key}"));
    let conf_v6 = |key: &str| path("ipv6/conf", &format!("{ifname}/{key}"));
    // The interface is new, so it has the default's values (`inetdev_init`,
    // net/ipv4/devinet.c), whose files the kernel need not make first.
    let default = |key: &str| read(&path("ipv4/conf/default", key));
    if default("forwarding")?.as_deref() != Some("1") {
        ensure(&v4("forwarding"), "1")?;
    }
    // Strict reverse-path checks drop hairpin and asymmetric traffic; loose
    // ones do not. Off stays off. The higher number of all and the interface
    // counts.
    let all = read(&path("ipv4/conf/all", "rp_filter"))?;
    if all.as_deref() == Some("1") || default("rp_filter")?.as_deref() == Some("1") {
        ensure_if_there(&v4("rp_filter"), "2")?;
    }
    if from_loopback {
        ensure(&v4("route_localnet"), "1")?;
    }
    // A pod must not be able to become the host's IPv6 router
    // (CVE-2020-10749). Without IPv6 there is no such file.
    ensure_if_there(&conf_v6("accept_ra"), "0")?;
    if v6 {
        forward_v6(Path::new(ROOT))?;
        ensure(&conf_v6("disable_ipv6"), "0")?;
    }
    Ok(())
}

/// Sets what the pod's end needs for IPv6, before it is brought up.
pub(crate) fn prepare_pod_end(netns: &Netns, ifname: &str) -> Result<(), Error> {
    let set = || {
        let key = |ifname: &str, key: &str| path("ipv6/conf", &format!("{ifname}/{key}"));
        // Runtimes leave IPv6 off in pods by default; one that is to have an
        // address needs it, on lo as well (plugins#113).
        ensure(&key("lo", "disable_ipv6"), "0")?;
        ensure(&key(ifname, "disable_ipv6"), "0")?;
        // For addresses that others add: nobody else is on the link.
        ensure_if_there(&key(ifname, "accept_dad"), "0")?;
        ensure_if_there(&key(ifname, "accept_ra"), "0")?;
        // Else the address is lost when somebody takes the interface down.
        ensure_if_there(&key(ifname, "keep_addr_on_down"), "1")
    };
    netns::visit(netns.as_fd(), set)
        .map_err(|source| failed("enter the pod's namespace for", Path::new(ROOT), source))?
}

/// A kernel without IPv6 (`ipv6.disable=1`) has none of its settings.
pub(crate) fn require_ipv6() -> Result<(), Error> {
    if Path::new(IPV6_CONF).exists() {
        Ok(())
    } else {
        Err(Error::NoIpv6 { path: IPV6_CONF })
    }
}

/// Pods that exist are cut off without it.
pub(crate) fn require_forwarding(pools: &Pools) -> Result<(), Error> {
    for pool in pools.iter() {
        let path = if pool.is_ipv4() {
            path("ipv4", "ip_forward")
        } else {
            path("ipv6", "conf/all/forwarding")
        };
        if read(&path)?.as_deref() != Some("1") {
            return Err(Error::ForwardingOff { path });
        }
    }
    Ok(())
}

/// Forwarding makes interfaces deaf to router advertisements, and so the node
/// loses its default route, unless they are told to listen all the same
/// (Documentation/networking/ip-sysctl, `accept_ra`).
///
/// `net`: /proc/sys/net.
fn forward_v6(net: &Path) -> Result<(), Error> {
    let conf = net.join("ipv6/conf");
    let all = conf.join("all/forwarding");
    if read(&all)?.as_deref() == Some("1") {
        return Ok(());
    }
    let listed = |source| failed("list", &conf, source);
    for entry in std::fs::read_dir(&conf).map_err(listed)? {
        let entry = entry.map_err(listed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Another pod's end listens for as long as its own ADD needs to come to that; told
        // here to go on, it would do so for good (CVE-2020-10749).
        if name == "all" || name == "default" || is_host_ifname(&name) {
            continue;
        }
        let accept_ra = entry.path().join("accept_ra");
        if read(&accept_ra)?.as_deref() == Some("1") {
            // Others' interfaces may be gone by now.
            ensure_if_there(&accept_ra, "2")?;
        }
    }
    ensure(&all, "1")
}

fn path(family: &str, key: &str) -> PathBuf {
    Path::new(ROOT).join(family).join(key)
}

/// Writes only what is not there already; a setting that the kernel does not have is an error.
fn ensure(path: &Path, value: &str) -> Result<(), Error> {
    if put(path, value)? {
        return Ok(());
    }
    Err(failed("write", path, io::ErrorKind::NotFound.into()))
}

/// The same, but where there is no such setting, there is nothing to set.
fn ensure_if_there(path: &Path, value: &str) -> Result<(), Error> {
    put(path, value).map(drop)
}

/// `false`: the kernel has no such setting. One open file serves both to look and to write, as
/// finding a setting of a new interface is what costs.
fn put(path: &Path, value: &str) -> Result<bool, Error> {
    let open = File::options().read(true).write(true).open(path);
    let outcome = open.and_then(|file| {
        if text_of(&file)? == value {
            return Ok(());
        }
        // At the start: the kernel takes no value from behind it (`sysctl_writes_strict`).
        file.write_all_at(value.as_bytes(), 0)
    });
    let refused = match outcome {
        Ok(()) => return Ok(true),
        // An interface may go while its setting is open: then even a write says so
        // (`proc_sys_call_handler`, fs/proc/proc_sysctl.c).
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => source,
    };
    // Where /proc/sys is mounted read-only, what is right already needs no writing.
    if read(path)?.as_deref() == Some(value) {
        return Ok(true);
    }
    Err(failed("write", path, refused))
}

/// `None`: the kernel has no such setting.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match File::open(path).and_then(|file| text_of(&file)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

fn text_of(file: &File) -> io::Result<String> {
    // One read gives all of it: a setting is a number here, and a file of
    // /proc/sys that is read on from behind its end is asked in vain.
    let mut room = [0; LONGEST];
    let length = file.read_at(&mut room, 0)?;
    Ok(String::from_utf8_lossy(&room[..length]).trim().to_owned())
}

fn failed(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        op,
        path: path.to_owned(),
        source,
    }
}
