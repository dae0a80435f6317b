//! What the API server's refusals mean, and how they are shown.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Shows an error with all of its causes, each text once: kube's errors repeat their
/// source in their own text.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !shown.contains(&text) {
                shown.push_str(": ");
                shown.push_str(&text);
            }
            cause = error.source();
        }
        f.write_str(&shown)
    }
}

/// HTTP status of a refusal.
pub(crate) fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The object is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    status_code(error) == Some(404)
}

/// It exists already, or a precondition (the UID) does not hold.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    status_code(error) == Some(409)
}

/// Bounds a request's time; running out of it is an error like any other.
pub(crate) async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(timeout, request).await {
        Ok(result) => result,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: Inner,
    }

    #[test]
    fn chain_shows_each_cause_once() {
        let plain = Outer {
            text: "outer",
            source: Inner,
        };
        assert_eq!(Chain(&plain).to_string(), "outer: inner");
        let repeating = Outer {
            text: "outer: inner",
            source: Inner,
        };
        assert_eq!(Chain(&repeating).to_string(), "outer: inner");
    }

    #[tokio::test]
    async fn a_request_that_hangs_is_given_up() {
        let hanging = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Duration::from_millis(1), hanging).await.unwrap_err();
        assert!(error.to_string().contains("elapsed"), "{error}");
    }
}
