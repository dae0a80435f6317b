//! `seaway-agent run`: against an API server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;
use tracing::info;

use super::tasks::Tasks;
use super::{AppError, pods, usage};
use crate::api::ApiObjects;
use crate::args::RunArgs;
use crate::config::NodeConfig;
use crate::events;
use crate::local::{Listing, LocalSource};
use crate::lock::RunDirLock;
use crate::node::lease::keep_lease;
use crate::node::{NodeKeeper, Registration};
use crate::pods::PodsHandle;
use crate::server::authorize::ApiAuthorizer;
use crate::server::tls::{self, ServingCertificate};
use crate::server::{self, AppState};

/// An API server that does not even take the connection is tried again soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(args: RunArgs) -> Result<(), AppError> {
    let config = NodeConfig::new(&args.node).map_err(usage)?;
    let acceptor = acceptor(&args, &config).map_err(usage)?;
    let client = client(&args.kubeconfig).await.map_err(usage)?;
    // Of its own: whatever blocks the other's connections, the heartbeat goes on.
    let lease_client = client_for_lease(&args.kubeconfig).await.map_err(usage)?;
    info!(?config, port = args.port, "Starting");

    let _lock = RunDirLock::take(&config.run_dir).map_err(anyhow::Error::from)?;
    let mut tasks = Tasks::new()?;
    let shutdown = tasks.shutdown.clone();
    let (sink, writer) = events::channel(&config.name);
    tasks.add(
        "writing events",
        writer.write_to_api(client.clone(), shutdown.clone()),
    );
    let (objects, reflectors) = ApiObjects::new(client.clone(), &config.name, sink.clone());
    for (name, reflector) in ["watching this node", "watching services"]
        .into_iter()
        .zip(reflectors)
    {
        let shutdown = shutdown.clone();
        tasks.add(name, async move {
            tokio::select! {
                () = reflector => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    let stream = objects.pods(&config.name);
    let handle = pods::start(&mut tasks, &config, Arc::new(objects.clone()), stream)?;

    let uid = watch::Sender::new(None);
    let lease = keep_lease(
        lease_client,
        config.name.clone(),
        uid.subscribe(),
        shutdown.clone(),
    );
    tasks.add("renewing the lease", lease);
    let keeper = NodeKeeper {
        config: config.clone(),
        registration: Registration {
            labels: args.node_labels,
            port: args.port,
        },
        client: client.clone(),
        watched: objects.node_store(),
        runtime: handle.runtime_status(),
        uid,
        events: sink,
    };
    tasks.add("keeping the node current", keeper.run(shutdown.clone()));

    let state = AppState {
        pods: Arc::new(handle.clone()),
        authorizer: Arc::new(ApiAuthorizer::new(client, config.name.clone())),
        pod_log_dir: config.pod_log_dir.clone(),
        tasks: server::task_tracker(),
    };
    let listener = server::listen(SocketAddr::new(args.address, args.port)).await;
    let listener = listener.map_err(anyhow::Error::from)?;
    tasks.add(
        "serving HTTPS",
        server::serve(listener, acceptor, state, shutdown),
    );
    let source = Arc::new(RunningNode { handle, objects });
    pods::serve_locally(&mut tasks, &config, source).await?;
    Ok(tasks.run().await?)
}

fn acceptor(args: &RunArgs, config: &NodeConfig) -> anyhow::Result<tokio_rustls::TlsAcceptor> {
    let serving = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => ServingCertificate::from_files(certificate, key)?,
        _ => ServingCertificate::self_signed(&config.name, &config.ips)?,
    };
    tls::acceptor(serving, &args.client_ca_file).context("--client-ca-file")
}

async fn kube_config(path: &Path) -> anyhow::Result<kube::Config> {
    let named = || format!("--kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).with_context(named)?;
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(named)?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}

async fn client(path: &Path) -> anyhow::Result<Client> {
    let config = kube_config(path).await?;
    info!(server = %config.cluster_url, "Using API server");
    seaway_proxy::api_client(config).context("set up the API client")
}

async fn client_for_lease(path: &Path) -> anyhow::Result<Client> {
    seaway_proxy::api_client(kube_config(path).await?).context("set up the lease's API client")
}

/// For `seaway-agent get`.
struct RunningNode {
    handle: PodsHandle,
    objects: ApiObjects,
}

impl LocalSource for RunningNode {
    fn listing(&self) -> Listing {
        let services = self.objects.service_store().state();
        Listing {
            pods: self.handle.list(),
            services: services
                .into_iter()
                .map(|service| Service::clone(&service))
                .collect(),
            endpoint_slices: None,
            refused: Vec::new(),
        }
    }
}
