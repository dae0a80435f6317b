//! The answer without a daemon: what it would want now, and what it has left.

use std::net::IpAddr;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use seaway_ebpf_loader::{look, wanted};
use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::explain::Target;
use seaway_proxy_core::explain::kernel::by_lines;
use seaway_proxy_core::{Compiled, Model, Skipped, compile};
use tokio::task::spawn_blocking;

use super::answer::{Facts, Kernel, Report, inspect, report as put_together, subject};
use crate::backends::{ebpf_options, iptables_to_look_at};
use crate::config::{Config, ServiceProxy};
use crate::nodes::{self, OwnNode};
use crate::service_proxy::node;
use crate::sources::list;

/// Lists, compiles, reads, compares.
///
/// # Errors
/// The API server or the kernel does not say.
pub(super) async fn report(
    config: &Config,
    client: &Client,
    target: Target,
    from: Option<IpAddr>,
) -> anyhow::Result<Report> {
    let (model, own) = read(client, &config.node_name).await.context(
        "the daemon does not run; read Services, EndpointSlices and this Node from the API",
    )?;
    let node = node::of(&config.node_name, own.clone(), &config.services);
    let Compiled {
        desired,
        mut skipped,
    } = compile(&model, &node);
    let (kernel, unsupported) = kernel(config, &desired, target).await?;
    skipped.extend(unsupported);
    let own = own.unwrap_or_default();
    let facts = Facts {
        model: &model,
        node: &node,
        desired: &desired,
        skipped: &skipped,
        own_pods: &own.pod_cidrs,
        all_pods: &config.pod_ranges(),
    };
    Ok(put_together(&facts, kernel, target, from, false))
}

async fn read(client: &Client, name: &str) -> Result<(Model, Option<OwnNode>), kube::Error> {
    let (services, slices, node): (Vec<Service>, Vec<EndpointSlice>, Option<Node>) =
        list(client, name).await?;
    let mut model = Model::new();
    model.reset_services(&services);
    model.reset_slices(&slices);
    Ok((model, node.as_ref().map(nodes::own)))
}

async fn kernel(
    config: &Config,
    desired: &DesiredState,
    target: Target,
) -> anyhow::Result<(Kernel, Vec<Skipped>)> {
    match config.service_proxy {
        ServiceProxy::Iptables => {
            let mut backend = iptables_to_look_at(config).await?;
            let kernel = inspect(&mut backend, desired, target).await?;
            Ok((kernel, backend.unsupported(desired)))
        }
        ServiceProxy::Ebpf => {
            let options = ebpf_options(config);
            let have = spawn_blocking(move || look(&options)).await;
            let have = have
                .context("on a blocking thread")?
                .context("read the BPF maps")?;
            let want = wanted(desired);
            let subject = subject(desired, target);
            let kernel = Kernel {
                backend: ServiceProxy::Ebpf.as_str().to_owned(),
                variant: None,
                inspection: by_lines(&have.to_string(), &want.to_string(), &subject),
            };
            let left_out = seaway_ebpf_loader::unsupported(desired);
            Ok((kernel, left_out.into_iter().map(Skipped::from).collect()))
        }
        ServiceProxy::Off => {
            anyhow::bail!("--service-proxy=off, so Services are somebody else's here")
        }
    }
}
