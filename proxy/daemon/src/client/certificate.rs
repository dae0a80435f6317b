//! The client certificate and its key in files, which are replaced while we run.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::{fs, io};

use kube::Config;
use kube::config::AuthInfo;
use tower::util::Oneshot;
use tower::{Service, ServiceExt as _};
use tracing::{info, warn};

use crate::chain::Chain;
use crate::outage::Outage;

#[cfg(test)]
mod tests;

/// An HTTP client that is made anew when the files hold something else.
///
/// kube reads them once. After the certificate's last day, every new connection would be refused
/// for as long as the process lives. A new client begins with no connections: an old one goes on
/// under the certificate that it began with, and ends with what is being asked on it.
///
/// The files are read for every request; there are few, and they are small.
#[derive(Clone)]
pub(super) struct Renewed<S>(Arc<Shared<S>>);

type Make<S> = fn(&Config) -> Result<S, kube::Error>;

struct Shared<S> {
    config: Config,
    make: Make<S>,
    files: Vec<PathBuf>,
    current: Mutex<Current<S>>,
}

struct Current<S> {
    client: S,
    /// What the files held.
    made_of: Vec<Vec<u8>>,
    outage: Outage,
}

/// Why the client stays as it is.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("use the client certificate and its key")]
    Identity(#[source] Box<kube::Error>),
}

impl<S: Clone> Renewed<S> {
    /// # Errors
    /// Those of `make`.
    pub(super) fn new(config: &Config, make: Make<S>) -> Result<Self, kube::Error> {
        let files = files(&config.auth_info);
        // Before `make` reads them, so that what comes in between is found to be new. What cannot
        // be read, it tells.
        let made_of = read(&files).unwrap_or_default();
        let current = Current {
            client: make(config)?,
            made_of,
            outage: Outage::default(),
        };
        Ok(Self(Arc::new(Shared {
            config: config.clone(),
            make,
            files,
            current: Mutex::new(current),
        })))
    }
}

impl<S: Clone> Shared<S> {
    /// The client with what the files hold now, or, if that is of no use, the one before: they
    /// may be in the midst of being replaced.
    fn current(&self) -> S {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.renew(&mut current) {
            let error = Chain(&error);
            if current.outage.is_news(&error.to_string()) {
                warn!(%error, "Cannot take the client certificate, going on with the one before");
            }
        } else {
            current.outage.over();
        }
        current.client.clone()
    }

    fn renew(&self, current: &mut Current<S>) -> Result<(), Unusable> {
        let files = read(&self.files)?;
        if files != current.made_of {
            let made = (self.make)(&self.config);
            current.client = made.map_err(|error| Unusable::Identity(Box::new(error)))?;
            current.made_of = files;
            info!("Using a new client certificate");
        }
        Ok(())
    }
}

impl<S, R> Service<R> for Renewed<S>
where
    S: Service<R> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Oneshot<S, R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Which client it will be shows when it is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.0.current().oneshot(request)
    }
}

/// Where kube takes the certificate and the key from. What the kubeconfig itself holds goes
/// before files, and what an `exec` plugin gives is not renewed.
fn files(auth: &AuthInfo) -> Vec<PathBuf> {
    if auth.exec.is_some() {
        return Vec::new();
    }
    let certificate = auth.client_certificate.as_ref();
    let certificate = certificate.filter(|_| auth.client_certificate_data.is_none());
    let key = auth.client_key.as_ref();
    let key = key.filter(|_| auth.client_key_data.is_none());
    certificate
        .into_iter()
        .chain(key)
        .map(PathBuf::from)
        .collect()
}

fn read(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, Unusable> {
    let read = |path: &PathBuf| {
        fs::read(path).map_err(|source| Unusable::File {
            path: path.clone(),
            source,
        })
    };
    files.iter().map(read).collect()
}
