//! An answer that says no, and why.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// A status and a text for the caller, as kubelet gives them: plain, not JSON.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { status, text }
    }

    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
}
