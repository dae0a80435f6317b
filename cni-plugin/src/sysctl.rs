//! Kernel settings of the host's end of a pod's veth.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

const ROOT: &str = "/proc/sys/net";

/// Sets what the host's end needs, before it is brought up. Reads first:
/// nothing is written where the value is right already, which also serves a
/// /proc/sys that is mounted read-only.
pub(crate) fn prepare_host_end(ifname: &str) -> Result<(), Error> {
    // The pods' packets are forwarded, and so are the answers, which come in
    // by other interfaces.
    ensure(&path("ipv4", "ip_forward"), "1")?;
    let v4 = |key: &str| path("ipv4/conf", &format!("{ifname}/{key}"));
    let v6 = |key: &str| path("ipv6/conf", &format!("{ifname}/{key}"));
    ensure(&v4("forwarding"), "1")?;
    // Strict reverse-path checks drop hairpin and asymmetric traffic; loose
    // ones do not. Off stays off.
    if read(&v4("rp_filter"))?.as_deref() == Some("1") {
        ensure(&v4("rp_filter"), "2")?;
    }
    // A pod that talks to itself through a Service must not be told of a
    // "better" way.
    ensure(&v4("send_redirects"), "0")?;
    // A pod must not be able to become the host's IPv6 router
    // (CVE-2020-10749). Without IPv6 there is no such file.
    if read(&v6("accept_ra"))?.is_some() {
        ensure(&v6("accept_ra"), "0")?;
    }
    Ok(())
}

fn path(family: &str, key: &str) -> PathBuf {
    Path::new(ROOT).join(family).join(key)
}

fn ensure(path: &Path, value: &str) -> Result<(), Error> {
    if read(path)?.as_deref() == Some(value) {
        return Ok(());
    }
    std::fs::write(path, value).map_err(|source| failed("write", path, source))
}

/// `None`: the kernel has no such setting.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path, source)),
    }
}

fn failed(op: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        op,
        path: path.to_owned(),
        source,
    }
}
