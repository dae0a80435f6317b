//! `seaway-agent standalone`: a directory of manifests, and the proxy in this process.

use std::sync::Arc;

use seaway_proxy::{
    Config as ProxyConfig, PodNetworkConfig, PodNetworkSettings, PodRoutes,
    ServiceProxy as ProxyMode, ServicesConfig, UpkeepConfig,
};
use tracing::info;

use super::tasks::Tasks;
use super::{AppError, pods, usage};
use crate::args::{Bind, ServiceProxy, StandaloneArgs};
use crate::config::NodeConfig;
use crate::events;
use crate::lock::RunDirLock;
use crate::standalone::Standalone;

pub(super) async fn standalone(args: StandaloneArgs) -> Result<(), AppError> {
    let config = NodeConfig::new(&args.node).map_err(usage)?;
    let proxy_config = proxy_config(&args, &config);
    info!(?config, proxy = ?proxy_config, directory = %args.dir.display(), "Starting");

    let _lock = RunDirLock::take(&config.run_dir).map_err(anyhow::Error::from)?;
    let mut tasks = Tasks::new()?;
    let shutdown = tasks.shutdown.clone();
    let (sink, writer) = events::channel(&config.name);
    tasks.add("logging events", writer.write_to_log(shutdown.clone()));
    let source = Arc::new(Standalone::new(
        config.clone(),
        args.pod_cidr,
        args.service_cidr,
    ));
    let handle = pods::start(&mut tasks, &config, source.objects(sink), source.pods())?;
    let runtime = handle.runtime_status();
    let sources = source.proxy_sources();
    pods::serve_locally(&mut tasks, &config, source.local_source()).await?;

    let (node, stop) = (Arc::clone(&source), shutdown.clone());
    tasks.add("keeping the node current", async move {
        node.keep_node(runtime, stop).await;
    });
    let (saved, stop) = (Arc::clone(&source), shutdown.clone());
    tasks.add("saving state", async move { saved.keep_saved(stop).await });
    let (dir, stop) = (args.dir, shutdown.clone());
    tasks.add_fallible("following the manifests", async move {
        Ok(source.follow(&dir, stop).await?)
    });
    tasks.add_fallible(
        "the proxy",
        seaway_proxy::run(proxy_config, sources, shutdown),
    );
    Ok(tasks.run().await?)
}

fn proxy_config(args: &StandaloneArgs, config: &NodeConfig) -> ProxyConfig {
    let (Bind(healthz_bind), Bind(metrics_bind)) = (
        args.proxy_healthz_bind_address,
        args.proxy_metrics_bind_address,
    );
    let cluster_cidrs = if args.cluster_cidr.is_empty() {
        &[args.pod_cidr]
    } else {
        &args.cluster_cidr[..]
    };
    let settings = PodNetworkSettings {
        // There is no other node to reach.
        mode: PodRoutes::Direct,
        cluster_cidrs: cluster_cidrs.iter().copied().map(Into::into).collect(),
        ..PodNetworkSettings::default()
    };
    ProxyConfig {
        node_name: config.name.clone(),
        service_proxy: match args.service_proxy {
            ServiceProxy::Ebpf => ProxyMode::Ebpf,
            ServiceProxy::Iptables => ProxyMode::Iptables,
            ServiceProxy::Off => ProxyMode::Off,
        },
        services: ServicesConfig::default(),
        run_dir: config.run_dir.clone(),
        pod_network: Some(PodNetworkConfig {
            settings,
            cni_conf_dir: args.cni_conf_dir.clone(),
            run_dir: config.run_dir.clone(),
        }),
        cgroup_root: args.proxy_cgroup_root.clone(),
        bpffs_dir: args.bpffs_dir.clone(),
        upkeep: UpkeepConfig::default(),
        healthz_bind,
        metrics_bind,
        bind_hard_fail: false,
    }
}
