//! How the daemon is.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::look::Look;

/// What `status` prints; without a daemon, that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    /// Whether it runs.
    pub(super) daemon: bool,
    /// Whether the kernel has all that is known, and is as it should be.
    pub(super) in_sync: bool,
    pub(super) node: String,
    /// `None`: the service proxy is off.
    pub(super) service_proxy: Option<ProxyStatus>,
    /// `None`: the pod network is off.
    pub(super) pod_network: Option<PodNetwork>,
}

/// The service proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProxyStatus {
    pub(super) backend: String,
    /// Such as the flavour of iptables.
    pub(super) variant: Option<String>,
    /// Whether Services and EndpointSlices have come from the API server once.
    pub(super) received: bool,
    pub(super) last_sync: Option<Timestamp>,
    pub(super) sync_age_seconds: Option<i64>,
    pub(super) pending_changes: i64,
    /// Rounds in a row that failed, and why.
    pub(super) failures: u64,
    pub(super) last_error: Option<String>,
    /// What a look at it has brought just now.
    pub(super) kernel: Look,
    /// How often something was found changed by others, and repaired.
    pub(super) drift_repaired: u64,
    pub(super) drift_last: Option<Timestamp>,
    pub(super) services: usize,
    pub(super) service_ports: usize,
    pub(super) endpoints: usize,
    /// Objects or fields that are not programmed and should concern somebody.
    pub(super) skipped: usize,
}

/// The pod network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodNetwork {
    /// Whether all is in place that is known.
    pub(super) in_sync: bool,
    pub(super) last_sync: Option<Timestamp>,
    /// Whether the CNI conf is there, so that pods are started.
    pub(super) cni_conf: bool,
}

impl Status {
    /// A daemon's, of its parts.
    pub(super) fn of(
        node: String,
        service_proxy: Option<ProxyStatus>,
        pod_network: Option<PodNetwork>,
    ) -> Self {
        let proxy = service_proxy.as_ref().is_none_or(ProxyStatus::in_sync);
        let network = pod_network
            .as_ref()
            .is_none_or(|network| network.in_sync && network.cni_conf);
        Self {
            daemon: true,
            in_sync: proxy && network,
            node,
            service_proxy,
            pod_network,
        }
    }
}

impl ProxyStatus {
    /// Why the kernel is not expected to hold what is desired; none if it is. Nobody has to look
    /// at it to know that.
    pub(super) fn unsettled(&self) -> Option<&'static str> {
        if !self.received {
            Some("the API server has not told all Services and EndpointSlices yet")
        } else if self.failures > 0 {
            Some("the last round has failed")
        } else if self.last_sync.is_none() {
            Some("nothing has been written yet")
        } else if self.pending_changes != 0 {
            Some("changes are pending")
        } else {
            None
        }
    }

    pub(super) fn in_sync(&self) -> bool {
        self.unsettled().is_none() && self.kernel.agree == Some(true)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.daemon {
            return writeln!(f, "the daemon does not run");
        }
        let word = if self.in_sync {
            "in sync"
        } else {
            "not in sync"
        };
        writeln!(f, "node {}: {word}", self.node)?;
        match &self.service_proxy {
            None => writeln!(f, "service proxy: off")?,
            Some(proxy) => write!(f, "{proxy}")?,
        }
        match &self.pod_network {
            None => writeln!(f, "pod network: off"),
            Some(network) => write!(f, "{network}"),
        }
    }
}

impl fmt::Display for ProxyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service proxy: {}", self.backend)?;
        if let Some(variant) = &self.variant {
            write!(f, " ({variant})")?;
        }
        writeln!(f)?;
        match (self.last_sync, self.sync_age_seconds) {
            (Some(at), Some(age)) => writeln!(f, "  last sync: {age} s ago ({at})")?,
            _ if self.received => writeln!(f, "  last sync: none yet")?,
            _ => writeln!(
                f,
                "  last sync: none yet, the API server has not told all Services"
            )?,
        }
        if let Some(error) = &self.last_error {
            writeln!(f, "  failed {} times in a row: {error}", self.failures)?;
        }
        writeln!(f, "  pending changes: {}", self.pending_changes)?;
        write!(f, "{}", self.kernel)?;
        write!(f, "  drift repaired: {}", self.drift_repaired)?;
        match self.drift_last {
            Some(at) => writeln!(f, ", last at {at}")?,
            None => writeln!(f)?,
        }
        let Self {
            services,
            service_ports,
            endpoints,
            skipped,
            ..
        } = self;
        writeln!(
            f,
            "  services: {services}, ports: {service_ports}, endpoints: {endpoints}, skipped: {skipped}"
        )
    }
}

impl fmt::Display for PodNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.in_sync {
            "in sync"
        } else {
            "not in sync"
        };
        write!(f, "pod network: {word}")?;
        if let Some(at) = self.last_sync {
            write!(f, ", last sync at {at}")?;
        }
        let conf = if self.cni_conf { "there" } else { "not there" };
        writeln!(f, ", CNI conf {conf}")
    }
}

#[cfg(test)]
mod tests;
