//! The bearer token in a file, which kubelet replaces while we run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Request};
use kube::Config;
use kube::client::AuthError;

/// Reads the file again for every request; there are few, and the file is small and in memory.
///
/// kube keeps what it has read for 50 s. An API server that takes the old token no more would
/// refuse us for as long, with the new one in reach.
#[derive(Clone)]
pub(super) struct TokenFile {
    path: PathBuf,
    /// What was read last, for when there is nothing to read.
    last: Arc<Mutex<HeaderValue>>,
}

impl TokenFile {
    /// Takes the file out of `config`, if it is what `config` has to authenticate by.
    ///
    /// # Errors
    /// It cannot be read, or holds no token.
    pub(super) fn of(config: &mut Config) -> Result<Option<Self>, kube::Error> {
        let auth = &mut config.auth_info;
        // All of them but the last go before a file with kube, and the last would be used
        // without it.
        let others = (auth.username.is_some() && auth.password.is_some())
            || auth.auth_provider.is_some()
            || auth.token.is_some()
            || auth.exec.is_some();
        if others {
            return Ok(None);
        }
        let Some(path) = auth.token_file.take().map(PathBuf::from) else {
            return Ok(None);
        };
        let token = read(&path).map_err(kube::Error::Auth)?;
        let last = Arc::new(Mutex::new(token));
        Ok(Some(Self { path, last }))
    }

    /// The request with the token of now.
    pub(super) fn sign<B>(&self, mut request: Request<B>) -> Request<B> {
        request.headers_mut().insert(AUTHORIZATION, self.header());
        request
    }

    fn header(&self) -> HeaderValue {
        let new = read(&self.path);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(new) = new {
            *last = new;
        }
        last.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue, AuthError> {
    let unreadable = |error| AuthError::ReadTokenFile(error, path.to_owned());
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let token = text.trim();
    if token.is_empty() {
        // It is just being written, by somebody who does not put it there as a whole.
        return Err(unreadable(ErrorKind::UnexpectedEof.into()));
    }
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(AuthError::InvalidBearerToken)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(path: &Path) -> Config {
        let mut config = Config::new("http://127.0.0.1:8001".parse().unwrap());
        config.auth_info.token_file = Some(path.display().to_string());
        config
    }

    #[test]
    fn a_new_token_counts_at_once_and_one_that_is_gone_as_long_as_no_other_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "first\n").unwrap();
        let token = TokenFile::of(&mut config(&path)).unwrap().unwrap();
        let sent = || token.sign(Request::new(())).headers()[AUTHORIZATION].clone();
        assert_eq!(sent(), "Bearer first");
        fs::write(&path, "second").unwrap();
        assert_eq!(sent(), "Bearer second");
        for bad in ["", "two\nlines"] {
            fs::write(&path, bad).unwrap();
            assert_eq!(sent(), "Bearer second", "{bad:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(sent(), "Bearer second");
        assert!(sent().is_sensitive());
    }

    #[test]
    fn without_a_file_there_is_nothing_to_begin_with() {
        assert!(TokenFile::of(&mut config(Path::new("/nonexistent/token"))).is_err());
        let mut none = Config::new("http://127.0.0.1:8001".parse().unwrap());
        assert!(TokenFile::of(&mut none).unwrap().is_none());
    }

    #[test]
    fn other_credentials_are_left_to_kube() {
        let mut config = config(Path::new("/nonexistent/token"));
        config.auth_info.token = Some("inline".into());
        assert!(TokenFile::of(&mut config).unwrap().is_none());
        assert!(config.auth_info.token_file.is_some());
    }
}
