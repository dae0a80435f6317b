//! When a server that is busy, or about to be there, is asked again.

use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use tower::BoxError;
use tower::retry::Policy;

/// The first pause; each further one doubles it,
const SOON: Duration = Duration::from_millis(100);
/// up to this,
const LATE: Duration = Duration::from_secs(1);
/// so often. Then whoever asks shall know: kube would keep it to itself for minutes, and pause
/// for minutes at last, while the server may be back.
const RETRIES: u32 = 3;
/// The longest pause that a server can ask for (`Retry-After`), in seconds. The API server
/// itself wants up to 32 s of who comes too often; something in front of it may want anything.
const LONGEST: u16 = 10;

/// kube's policy for 429 and 503, which obeys `Retry-After`, up to ten seconds.
///
/// A 504 is not asked again: an API server gives one after it has worked on the request for a
/// minute, and would work on the same for another.
#[derive(Clone)]
pub(super) struct Patience(RetryPolicy);

impl Patience {
    pub(super) fn new() -> Self {
        let policy = RetryPolicy::new(SOON, LATE, RETRIES, true);
        Self(policy.expect("the pauses are constant, and the first is the shorter one"))
    }
}

impl<R> Policy<Request<Body>, Response<R>, BoxError> for Patience {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<R>, BoxError>,
    ) -> Option<Self::Future> {
        if let Ok(answer) = result {
            if answer.status() == StatusCode::GATEWAY_TIMEOUT {
                return None;
            }
            if let Some(asked) = answer.headers_mut().get_mut(RETRY_AFTER)
                && seconds(asked).is_some_and(|seconds| seconds > LONGEST.into())
            {
                *asked = HeaderValue::from(LONGEST);
            }
        }
        self.0.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        <RetryPolicy as Policy<_, Response<R>, BoxError>>::clone_request(&mut self.0, request)
    }
}

fn seconds(header: &HeaderValue) -> Option<u64> {
    header.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// How long a server with such an answer is left alone, once and again.
    fn pauses(status: StatusCode, after: Option<&'static str>) -> Vec<Duration> {
        let mut patience = Patience::new();
        let mut pauses = Vec::new();
        loop {
            let mut answer = Response::new(());
            *answer.status_mut() = status;
            if let Some(after) = after {
                let headers = answer.headers_mut();
                headers.insert(RETRY_AFTER, HeaderValue::from_static(after));
            }
            let now = Instant::now();
            let mut request = Request::new(Body::empty());
            let Some(sleep) = patience.retry(&mut request, &mut Ok(answer)) else {
                return pauses;
            };
            pauses.push(sleep.deadline().duration_since(now));
        }
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_as_late_as_it_wants_within_reason() {
        for status in [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ] {
            for (after, least, most) in [(None, 0, 2), (Some("5"), 5, 6), (Some("86400"), 10, 11)] {
                let pauses = pauses(status, after);
                assert_eq!(pauses.len(), 3, "{status} {after:?}");
                let range = Duration::from_secs(least)..Duration::from_secs(most);
                let within = pauses.iter().all(|pause| range.contains(pause));
                assert!(within, "{status} {after:?} {pauses:?}");
            }
        }
        for status in [
            StatusCode::GATEWAY_TIMEOUT,
            StatusCode::FORBIDDEN,
            StatusCode::OK,
        ] {
            assert!(pauses(status, Some("1")).is_empty(), "{status}");
        }
    }
}
