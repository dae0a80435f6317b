//! The host's ends of pods that live: what others have made of their settings.
//!
//! Some programs set all interfaces, at any time: systemd-sysctl by its patterns, and whoever
//! hardens a machine. The kernel tells nobody of most settings, so they are looked at: four to
//! six small files of each pod.

use std::path::{Path, PathBuf};

use super::{ROOT, ensure_if_there, read};
use crate::error::Error;

/// Where the settings are, and what all interfaces have.
pub(crate) struct HostEnds {
    /// /proc/sys/net.
    net: PathBuf,
    /// The higher number of this one and the interface's counts.
    rp_filter_of_all: Option<String>,
}

/// A setting, as it has to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    path: PathBuf,
    value: &'static str,
}

impl HostEnds {
    /// Looks at what concerns all of them.
    pub(crate) fn look() -> Result<Self, Error> {
        Self::below(Path::new(ROOT))
    }

    pub(super) fn below(net: &Path) -> Result<Self, Error> {
        Ok(Self {
            net: net.to_owned(),
            rp_filter_of_all: read(&net.join("ipv4/conf/all/rp_filter"))?,
        })
    }

    /// What is not as an ADD leaves it ([`prepare_host_end`](super::prepare_host_end), and
    /// redirects, which it switches off by netlink). Where an interface has no such setting,
    /// because it is gone or the kernel has no IPv6, nothing is wrong.
    ///
    /// Whether the machine forwards at all is not the business of one pod.
    pub(crate) fn wrong(
        &self,
        ifname: &str,
        v6: bool,
        from_loopback: bool,
    ) -> Result<Vec<Setting>, Error> {
        let needed = [
            ("ipv4", "forwarding", "1", true),
            ("ipv4", "send_redirects", "0", true),
            ("ipv4", "route_localnet", "1", from_loopback),
            ("ipv6", "accept_ra", "0", true),
            ("ipv6", "disable_ipv6", "0", v6),
        ];
        let mut wrong = Vec::new();
        for (family, key, value, _) in needed.into_iter().filter(|(.., needed)| *needed) {
            let path = self.path(family, ifname, key);
            if read(&path)?.is_some_and(|now| now != value) {
                wrong.push(Setting { path, value });
            }
        }
        let path = self.path("ipv4", ifname, "rp_filter");
        if let Some(now) = read(&path)? {
            let counts = Some(now.as_str()).max(self.rp_filter_of_all.as_deref());
            // Strict; off stays off.
            if counts == Some("1") {
                wrong.push(Setting { path, value: "2" });
            }
        }
        Ok(wrong)
    }

    fn path(&self, family: &str, ifname: &str, key: &str) -> PathBuf {
        let conf = self.net.join(family).join("conf");
        conf.join(ifname).join(key)
    }
}

impl Setting {
    /// Writes it, if there is such a setting still.
    pub(crate) fn set(&self) -> Result<(), Error> {
        ensure_if_there(&self.path, self.value)
    }
}
