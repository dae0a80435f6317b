//! Runs the probes of one pod, each on a task of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use seaway_agent_core::observed::{Instance, Observed, RunState};
use seaway_agent_core::probe::{self, ProbeKind, Timing, Verdict};
use seaway_agent_core::spec;
use seaway_agent_core::state::PodState;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, timeout};

use super::{Shared, probe_http};
use crate::objects::EventType;

/// Verdicts wait here for the pod's loop; a probe that finds it full waits too,
/// which only delays its next run. Three kinds for each of a few containers.
const QUEUE: usize = 16;

/// A verdict that changed.
#[derive(Debug)]
pub(super) struct ProbeResult {
    pub(super) container_id: String,
    pub(super) kind: ProbeKind,
    pub(super) good: bool,
}

/// The probes of one pod.
#[derive(Debug)]
pub(super) struct Probes {
    tasks: JoinSet<()>,
    running: BTreeMap<(String, ProbeKind), AbortHandle>,
    sender: mpsc::Sender<ProbeResult>,
    results: mpsc::Receiver<ProbeResult>,
}

impl Probes {
    pub(super) fn new() -> Self {
        let (sender, results) = mpsc::channel(QUEUE);
        Self {
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            sender,
            results,
        }
    }

    /// The next verdict.
    pub(super) async fn next(&mut self) -> ProbeResult {
        self.results
            .recv()
            .await
            .expect("this struct holds a sender")
    }

    /// Starts and stops probes so that they fit what runs.
    pub(super) fn sync(
        &mut self,
        shared: &Arc<Shared>,
        pod: &Pod,
        observed: &Observed,
        state: &PodState,
        terminating: bool,
    ) {
        while self.tasks.try_join_next().is_some() {}
        let mut wanted = BTreeSet::new();
        for container in spec::containers(pod) {
            let Some(instance) = observed.latest(&container.name) else {
                continue;
            };
            if instance.state != RunState::Running {
                continue;
            }
            for kind in kinds(container, instance, state, terminating) {
                wanted.insert((instance.id.clone(), kind));
                self.ensure(shared, pod, observed, container, instance, kind);
            }
        }
        self.running.retain(|key, task| {
            let keep = wanted.contains(key);
            if !keep {
                task.abort();
            }
            keep
        });
    }

    fn ensure(
        &mut self,
        shared: &Arc<Shared>,
        pod: &Pod,
        observed: &Observed,
        container: &Container,
        instance: &Instance,
        kind: ProbeKind,
    ) {
        let key = (instance.id.clone(), kind);
        let found = probe::probes(container).find(|(other, _)| *other == kind);
        let (Some((_, probe)), false) = (found, self.running.contains_key(&key)) else {
            return;
        };
        let ips = observed
            .newest_sandbox()
            .map(|s| s.ips.clone())
            .unwrap_or_default();
        let node_ip = shared.config.node_ips.first().map(ToString::to_string);
        let prober = Prober {
            shared: Arc::clone(shared),
            pod: pod.clone(),
            container: container.clone(),
            container_id: instance.id.clone(),
            started_at: instance.started_at.unwrap_or(instance.created_at),
            host: ips
                .first()
                .cloned()
                .or(node_ip)
                .unwrap_or_else(|| "127.0.0.1".into()),
            kind,
            probe: probe.clone(),
            sender: self.sender.clone(),
        };
        self.running.insert(key, self.tasks.spawn(prober.run()));
    }
}

/// Which probes of a running container have work now.
fn kinds(
    container: &Container,
    instance: &Instance,
    state: &PodState,
    terminating: bool,
) -> Vec<ProbeKind> {
    let known = state.probes.get(&instance.id).cloned().unwrap_or_default();
    let started = container.startup_probe.is_none() || known.started == Some(true);
    probe::probes(container)
        .map(|(kind, _)| kind)
        .filter(|kind| match kind {
            ProbeKind::Startup => !started && known.failed.is_none() && !terminating,
            ProbeKind::Liveness => started && known.failed.is_none() && !terminating,
            ProbeKind::Readiness => started,
        })
        .collect()
}

struct Prober {
    shared: Arc<Shared>,
    pod: Pod,
    container: Container,
    container_id: String,
    started_at: Timestamp,
    host: String,
    kind: ProbeKind,
    probe: Probe,
    sender: mpsc::Sender<ProbeResult>,
}

impl Prober {
    async fn run(self) {
        let timing = Timing::from(&self.probe);
        let age = Timestamp::now()
            .duration_since(self.started_at)
            .unsigned_abs();
        tokio::time::sleep(timing.initial_delay.saturating_sub(age)).await;
        let mut ticks = tokio::time::interval(timing.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut verdict = Verdict::new(timing);
        let mut told = None;
        loop {
            ticks.tick().await;
            let outcome = self.probe_once(timing.timeout).await;
            if let Err(output) = &outcome {
                self.unhealthy(output);
            }
            let Some(good) = verdict.note(outcome.is_ok()) else {
                continue;
            };
            if told == Some(good) {
                continue;
            }
            told = Some(good);
            let result = ProbeResult {
                container_id: self.container_id.clone(),
                kind: self.kind,
                good,
            };
            if self.sender.send(result).await.is_err() {
                return;
            }
        }
    }

    fn unhealthy(&self, output: &str) {
        let message = format!("{} probe failed: {output}", self.kind.title());
        let name = &self.container.name;
        self.shared
            .container_event(&self.pod, name, EventType::Warning, "Unhealthy", message);
    }

    /// One run; the error is what `kubectl describe` shows.
    async fn probe_once(&self, limit: Duration) -> Result<(), String> {
        if let Some(exec) = &self.probe.exec {
            let command = exec.command.clone().unwrap_or_default();
            return self.exec(command, limit).await;
        }
        if let Some(get) = &self.probe.http_get {
            let port = self.port(&get.port)?;
            let request = probe_http::Request {
                get,
                host: &self.host,
                port,
            };
            let answer = timeout(limit, probe_http::get(request)).await;
            return answer.unwrap_or_else(|_elapsed| {
                Err(
                    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
                        .into(),
                )
            });
        }
        if let Some(tcp) = &self.probe.tcp_socket {
            let port = self.port(&tcp.port)?;
            let host = tcp
                .host
                .as_deref()
                .filter(|h| !h.is_empty())
                .unwrap_or(&self.host);
            let connected = timeout(limit, TcpStream::connect((host, port))).await;
            return match connected {
                Ok(Ok(_stream)) => Ok(()),
                Ok(Err(error)) => Err(format!("dial tcp {host}:{port}: {error}")),
                Err(_elapsed) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
            };
        }
        Err("the probe has no handler that this agent knows".into())
    }

    fn port(
        &self,
        port: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString,
    ) -> Result<u16, String> {
        probe::port(&self.container, port)
            .ok_or_else(|| format!("port {port:?} is neither a number nor a port of the container"))
    }

    async fn exec(&self, command: Vec<String>, limit: Duration) -> Result<(), String> {
        let id = &self.container_id;
        match self.shared.cri.exec_sync(id, command.clone(), limit).await {
            Ok(done) if done.exit_code == 0 => Ok(()),
            Ok(done) => {
                let mut output = String::from_utf8_lossy(&done.stdout).into_owned();
                output.push_str(&String::from_utf8_lossy(&done.stderr));
                Err(if output.is_empty() {
                    format!("command {command:?} exited with {}", done.exit_code)
                } else {
                    output
                })
            }
            Err(error) => Err(error.message()),
        }
    }
}
