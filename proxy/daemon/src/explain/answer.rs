//! The answer of `explain`: what should be, and what is.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::explain::kernel::{Inspection, Subject};
use seaway_proxy_core::explain::{self, Explanation, Surroundings, Target};
use seaway_proxy_core::{Model, Node, Skipped};
use serde::{Deserialize, Serialize};

use crate::config::ServiceProxy;

/// What is printed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Whether the daemon has answered; otherwise this was computed from the API.
    pub(super) daemon: bool,
    #[serde(flatten)]
    pub(super) explanation: Explanation,
    pub(super) kernel: Kernel,
    /// Whether the kernel does what it should.
    pub(crate) agree: bool,
}

/// What a kernel holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kernel {
    pub(super) backend: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variant: Option<String>,
    #[serde(flatten)]
    pub(super) inspection: Inspection,
}

/// What the answer is made of.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) model: &'a Model,
    pub(crate) node: &'a Node,
    pub(crate) desired: &'a DesiredState,
    pub(crate) skipped: &'a [Skipped],
    pub(crate) own_pods: &'a [IpNetwork],
    pub(crate) all_pods: &'a [IpNetwork],
}

/// What is to be looked for in the kernel.
pub(crate) fn subject(desired: &DesiredState, target: Target) -> Subject {
    let surroundings = Surroundings {
        addresses: super::own_addresses(),
        ..Surroundings::default()
    };
    Subject {
        target,
        endpoints: explain::endpoints(desired, &surroundings, target),
    }
}

/// Reads the kernel and compares.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn inspect<B: Backend>(
    backend: &mut B,
    desired: &DesiredState,
    target: Target,
) -> Result<Kernel, BackendError> {
    let have = backend.read_in_full().await?;
    let want = backend.render(desired);
    Ok(Kernel {
        backend: backend.name().to_owned(),
        variant: backend.variant(),
        inspection: backend.inspect(&have, &want, &subject(desired, target)),
    })
}

/// Where a backend that translates sockets differs from the table of clients.
const EBPF_CLIENTS: &str = "with eBPF, processes of this node's cgroup are served and nobody is \
                            masqueraded; packets from elsewhere go their way untranslated";

/// Puts both together.
pub(crate) fn report(
    facts: &Facts<'_>,
    kernel: Kernel,
    target: Target,
    from: Option<IpAddr>,
    daemon: bool,
) -> Report {
    let surroundings = Surroundings {
        addresses: super::own_addresses(),
        own_pods: facts.own_pods.to_vec(),
        all_pods: facts.all_pods.to_vec(),
    };
    let core = explain::Facts {
        model: facts.model,
        node: facts.node,
        desired: facts.desired,
        skipped: facts.skipped,
        surroundings: &surroundings,
    };
    let mut explanation = explain::explain(core, target, from);
    if kernel.backend == ServiceProxy::Ebpf.as_str() && explanation.served.is_some() {
        explanation.notes.push(EBPF_CLIENTS.to_owned());
    }
    Report {
        daemon,
        explanation,
        agree: kernel.inspection.differences.is_empty(),
        kernel,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.daemon {
            let mode = &self.kernel.backend;
            writeln!(
                f,
                "the daemon does not run; computed from the API now, with --service-proxy={mode}"
            )?;
        }
        write!(f, "{}", self.explanation)?;
        let Kernel {
            backend,
            variant,
            inspection,
        } = &self.kernel;
        write!(f, "kernel ({backend}")?;
        if let Some(variant) = variant {
            write!(f, ", {variant}")?;
        }
        writeln!(f, ")")?;
        if inspection.holds.is_empty() {
            writeln!(f, "  holds nothing for this address")?;
        }
        for line in &inspection.holds {
            writeln!(f, "  {line}")?;
        }
        if self.agree {
            return writeln!(f, "the kernel is as it should be");
        }
        writeln!(f, "the kernel is not as it should be")?;
        for difference in &inspection.differences {
            writeln!(f, "  {difference}")?;
        }
        Ok(())
    }
}
