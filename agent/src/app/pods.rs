//! The part that both modes share: pods on the runtime, from some source of objects.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use seaway_agent_cri::{CriClient, ExecStreams};
use tracing::info;

use super::tasks::Tasks;
use crate::api::Watch;
use crate::cni_cache;
use crate::config::NodeConfig;
use crate::objects::Objects;
use crate::pods::{PodManager, PodsConfig, PodsHandle};
use crate::server::{PodAccess, StreamError, Streams};
use crate::volumes::{Volumes, VolumesConfig};
use crate::{local, server};

/// More would only share the same line and disk.
const MAX_PARALLEL_PULLS: usize = 5;

/// Makes the manager of this node's pods; `pods` of the result runs in `tasks`.
pub(super) fn start(
    tasks: &mut Tasks,
    config: &NodeConfig,
    objects: Arc<dyn Objects>,
    pods: Watch<Pod>,
) -> anyhow::Result<PodsHandle> {
    let pods_dir = config.root_dir.join("pods");
    let endpoint = format!("unix://{}", config.runtime_socket.display());
    let cri = CriClient::new(&endpoint).context("--runtime-endpoint")?;
    let volumes = VolumesConfig {
        pods_dir: pods_dir.clone(),
    };
    let volumes = Arc::new(Volumes::new(volumes, Arc::clone(&objects)));
    let manager = PodManager::new(pods_config(config, pods_dir), cri, objects, volumes);
    let handle = manager.handle();
    let shutdown = tasks.shutdown.clone();
    let cni_cache = config.cni_cache_dir.clone();
    tasks.add_fallible("running pods", async move {
        cni_cache::remove_damaged(&cni_cache).await;
        Ok(manager.run(pods, shutdown).await?)
    });
    Ok(handle)
}

fn pods_config(config: &NodeConfig, pods_dir: PathBuf) -> PodsConfig {
    PodsConfig {
        node_name: config.name.clone(),
        node_ips: config.ips.clone(),
        pods_dir,
        pod_log_dir: config.pod_log_dir.clone(),
        log_records_dir: config.root_dir.join("pod-logs"),
        cgroup_root: config.cgroup_root.clone(),
        cluster_dns: config.cluster_dns.clone(),
        cluster_domain: config.cluster_domain.clone(),
        resolv_conf: PathBuf::from("/etc/resolv.conf"),
        max_parallel_pulls: MAX_PARALLEL_PULLS,
    }
}

/// Plain `/healthz` and the socket of `seaway-agent get`.
pub(super) async fn serve_locally(
    tasks: &mut Tasks,
    config: &NodeConfig,
    source: Arc<dyn local::LocalSource>,
) -> anyhow::Result<()> {
    if let Some(address) = config.healthz_bind {
        let listener = server::listen(address).await?;
        info!(%address, "Serving /healthz");
        tasks.add(
            "serving healthz",
            server::serve_healthz(listener, tasks.shutdown.clone()),
        );
    }
    let listener = local::listen(&config.run_dir)?;
    tasks.add(
        "serving the local socket",
        local::serve(listener, source, tasks.shutdown.clone()),
    );
    Ok(())
}

impl PodAccess for PodsHandle {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.list().into_iter().map(Arc::new).collect()
    }

    fn exec_url(
        &self,
        container_id: String,
        command: Vec<String>,
        streams: Streams,
    ) -> BoxFuture<'_, Result<String, StreamError>> {
        let Streams {
            stdin,
            stdout,
            stderr,
            tty,
        } = streams;
        let streams = ExecStreams {
            tty,
            stdin,
            stdout,
            stderr,
        };
        async move {
            let url = PodsHandle::exec_url(self, &container_id, command, streams).await;
            url.map_err(|source| StreamError {
                container_id,
                source: Box::new(source),
            })
        }
        .boxed()
    }
}
