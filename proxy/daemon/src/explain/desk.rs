//! Where the sync loop is asked, and where it leaves word of itself.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnetwork::IpNetwork;
use k8s_openapi::jiff::Timestamp;
use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::DesiredState;
use seaway_proxy_core::explain::Target;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::timeout;

use super::answer::Report;
use super::look::Look;
use crate::chain::Chain;

/// Questions that may wait at the same time; whoever comes then waits to be let in.
const QUEUE: usize = 8;

/// One question for the loop.
#[derive(Debug)]
pub(crate) enum Question {
    /// What an address is, by all that is known now.
    Address(AddressQuestion),
    /// Whether the kernel is as the last round has wanted it. This waits for no other round:
    /// whoever asks how things are must not hasten them.
    Kernel(oneshot::Sender<Look>),
}

impl Question {
    /// Nobody can look at the kernel.
    pub(crate) fn refuse(self, why: &BackendError) {
        let why = Chain(why).to_string();
        // Whoever has asked may have gone.
        match self {
            Self::Address(asked) => drop(asked.answer.send(Err(why))),
            Self::Kernel(asked) => drop(asked.send(Look::unknown(why))),
        }
    }
}

/// What an address is.
#[derive(Debug)]
pub(crate) struct AddressQuestion {
    pub(crate) target: Target,
    pub(crate) from: Option<IpAddr>,
    answer: oneshot::Sender<Result<Report, String>>,
}

impl AddressQuestion {
    /// Whoever has asked may have gone.
    pub(crate) fn answer(self, result: Result<Report, BackendError>) {
        let result = result.map_err(|error| Chain(&error).to_string());
        self.answer.send(result).ok();
    }
}

/// The loop's side.
#[derive(Debug)]
pub(crate) struct Desk {
    questions: AsyncMutex<mpsc::Receiver<Question>>,
    said: Arc<Mutex<Said>>,
    /// Where all pods are, as far as flags tell.
    pub(crate) all_pods: Vec<IpNetwork>,
}

/// The other side.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    questions: mpsc::Sender<Question>,
    said: Arc<Mutex<Said>>,
}

/// What the loop has last said of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) backend: Option<&'static str>,
    pub(super) variant: Option<String>,
    /// End of the last good round.
    pub(super) synced: Option<Timestamp>,
    /// Rounds in a row that failed, and why the last one did.
    pub(super) failures: u64,
    pub(super) error: Option<String>,
    pub(super) drift_repaired: u64,
    pub(super) drift_last: Option<Timestamp>,
    pub(super) service_ports: usize,
    pub(super) endpoints: usize,
    pub(super) skipped: usize,
}

/// A good round.
#[derive(Debug)]
pub(crate) struct GoodRound<'a> {
    pub(crate) desired: &'a DesiredState,
    pub(crate) skipped: usize,
    /// Whether it put back what somebody else had changed.
    pub(crate) repaired: bool,
}

impl Desk {
    pub(crate) fn new(all_pods: Vec<IpNetwork>) -> (Self, Bell) {
        let (sender, questions) = mpsc::channel(QUEUE);
        let said = Arc::<Mutex<Said>>::default();
        let desk = Self {
            questions: AsyncMutex::new(questions),
            said: said.clone(),
            all_pods,
        };
        let bell = Bell {
            questions: sender,
            said,
        };
        (desk, bell)
    }

    /// The next question; none for ever if nobody can ask any more.
    pub(crate) async fn asked(&self) -> Question {
        match self.questions.lock().await.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        }
    }

    /// A round went well.
    pub(crate) fn succeeded<B: Backend>(&self, backend: &B, round: &GoodRound<'_>) {
        let halves = [&round.desired.v4, &round.desired.v6];
        let ports = halves.into_iter().flat_map(|half| half.services.values());
        let now = Timestamp::now();
        let mut said = lock(&self.said);
        said.backend = Some(backend.name());
        said.variant = backend.variant();
        said.synced = Some(now);
        said.failures = 0;
        said.error = None;
        said.service_ports = round.desired.service_ports();
        said.endpoints = ports.map(|port| port.cluster.len()).sum();
        said.skipped = round.skipped;
        if round.repaired {
            said.drift_repaired += 1;
            said.drift_last = Some(now);
        }
    }

    /// A round did not.
    pub(crate) fn failed<B: Backend>(&self, backend: &B, error: &BackendError) {
        self.cannot_begin(backend.name(), error);
        lock(&self.said).variant = backend.variant();
    }

    /// Now there can be rounds.
    pub(crate) fn can_begin(&self) {
        let mut said = lock(&self.said);
        said.failures = 0;
        said.error = None;
    }

    /// There can be none yet.
    pub(crate) fn cannot_begin(&self, backend: &'static str, error: &BackendError) {
        let mut said = lock(&self.said);
        said.backend = Some(backend);
        said.failures += 1;
        said.error = Some(Chain(error).to_string());
    }
}

impl Bell {
    pub(super) fn said(&self) -> Said {
        lock(&self.said).clone()
    }

    #[cfg(test)]
    pub(crate) fn drift_repaired(&self) -> u64 {
        self.said().drift_repaired
    }

    /// Asks the loop about an address; none when it has ended.
    pub(super) async fn ask(
        &self,
        target: Target,
        from: Option<IpAddr>,
    ) -> Option<Result<Report, String>> {
        let (answer, answered) = oneshot::channel();
        let question = Question::Address(AddressQuestion {
            target,
            from,
            answer,
        });
        self.questions.send(question).await.ok()?;
        answered.await.ok()
    }

    /// Has the loop look at the kernel, unless it has other things to do for so long.
    pub(super) async fn look(&self, patience: Duration) -> Look {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            let question = Question::Kernel(answer);
            self.questions.send(question).await.ok()?;
            answered.await.ok()
        };
        match timeout(patience, asked).await {
            Ok(Some(look)) => look,
            Ok(None) => Look::unknown("the service proxy is ending"),
            Err(_elapsed) => {
                let seconds = patience.as_secs_f64();
                Look::unknown(format!("the service proxy has been busy for {seconds} s"))
            }
        }
    }
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    // Written field by field without a chance to panic in between.
    said.lock().unwrap_or_else(PoisonError::into_inner)
}
