//! Requests are counted and timed on their way.

use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use axum::http::{Request, Response, Uri};
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tower::{BoxError, Layer, Service};

use crate::metrics::{ToServer, UnderWay};

#[cfg(test)]
mod tests;

/// Counts what passes it: below whoever tries again, so that each try counts.
#[derive(Clone)]
pub(super) struct Tries(pub(super) ToServer);

/// Measures how long what passes it takes: above whoever tries again, so that pauses count.
#[derive(Clone)]
pub(super) struct Whole(pub(super) ToServer);

/// `inner`, measured by one of them.
#[derive(Clone)]
pub(super) struct Measured<M, S> {
    by: M,
    inner: S,
}

/// What is measured `by` one of them.
#[derive(Clone)]
pub(super) struct By<M>(pub(super) M);

impl<M: Clone, S> Layer<S> for By<M> {
    type Service = Measured<M, S>;

    fn layer(&self, inner: S) -> Self::Service {
        let by = self.0.clone();
        Measured { by, inner }
    }
}

impl<S, A, B> Service<Request<A>> for Measured<Tries, S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (server, method) = (self.by.0.clone(), request.method().clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            server.tried(&method, answer.as_ref().ok().map(Response::status));
            answer
        })
    }
}

impl<S, A, B> Service<Request<A>> for Measured<Whole, S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let under_way = self.by.0.begins(request.method());
        // Its answer goes on for minutes, however fast the server is.
        let is_watch = is_watch(request.uri());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            let until_read = (!is_watch).then_some(under_way);
            Ok(answer.map(|body| holding(body, until_read)))
        })
    }
}

/// A body that drops `until_read` when it fails, or with itself.
fn holding<B>(body: B, mut until_read: Option<UnderWay>) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let failed = move |error: B::Error| -> BoxError {
        drop(until_read.take());
        error.into()
    };
    body.map_err(failed).boxed_unsync()
}

fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

/// Name and port of the server at `url`; a password that is in there is nobody's business.
pub(super) fn host(url: &Uri) -> String {
    let usual = if url.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    let port = url.port_u16().unwrap_or(usual);
    format!("{}:{port}", url.host().unwrap_or("none"))
}
