//! What a server does on a bad day: it refuses, forgets, or comes back with another history.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::http::Request;
use super::{FakeApi, State};

/// How a watch is told that what came next has been forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gone {
    /// One that goes on ends with an error, one that begins is nothing but that error.
    #[default]
    Event,
    /// One that goes on just ends, one that begins is answered with 410.
    Status,
}

/// What becomes of a watch from a version that the server has not come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ahead {
    /// It is answered with 504, and with the cause.
    #[default]
    Refused,
    /// It is told nothing until the server has come so far.
    Silent,
}

/// Objects and version of a moment.
#[derive(Clone, Debug)]
pub struct Backup {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
}

impl FakeApi {
    /// Answers everything with `status`, such as `403 Forbidden`, or no more. Watches that go on
    /// are not concerned.
    pub fn refuse(&self, status: Option<&'static str>) {
        self.lock().refusal = status;
    }

    /// Takes this bearer token, and no other one, for what is asked from now on.
    pub fn take_token(&self, token: &str) {
        self.lock().token = Some(token.to_owned());
    }

    /// Breaks off all connections; new ones are answered.
    pub fn break_off(&self) {
        self.lock().break_off();
    }

    /// When connections came that were broken off at once, because it was down.
    #[must_use]
    pub fn turned_away(&self) -> Vec<Instant> {
        self.lock().turned_away.clone()
    }

    /// Forgets what has changed up to now: no watch from before can go on.
    pub fn forget(&self, gone: Gone) {
        let mut state = self.lock();
        state.version += 1;
        state.oldest = state.version;
        state.gone = gone;
        self.state.1.notify_all();
    }

    /// What there is now.
    #[must_use]
    pub fn backup(&self) -> Backup {
        let state = self.lock();
        Backup {
            version: state.version,
            objects: state.objects.clone(),
        }
    }

    /// What came after `backup` has never been; its versions are given again.
    pub fn restore(&self, backup: &Backup, ahead: Ahead) {
        let mut state = self.lock();
        state.version = backup.version;
        state.objects.clone_from(&backup.objects);
        state.events.retain(|event| event.0 <= backup.version);
        state.ahead = ahead;
    }

    /// The answer to a request that is refused, whatever it asks for.
    pub(super) fn refused(&self, request: &Request) -> Option<(&'static str, Value)> {
        let state = self.lock();
        let status = match &state.token {
            Some(token) if request.token.as_ref() != Some(token) => Some("401 Unauthorized"),
            _ => state.refusal,
        };
        status.map(|status| (status, failure(status)))
    }

    /// The answer to a watch from `since` that cannot begin.
    pub(super) fn cannot_begin(&self, since: u64) -> Option<(&'static str, Value)> {
        let state = self.lock();
        if since > state.version && state.ahead == Ahead::Refused {
            let status = "504 Gateway Timeout";
            let mut failure = failure(status);
            failure["reason"] = json!("Timeout");
            failure["details"] = json!({
                "causes": [{
                    "reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version",
                }],
                "retryAfterSeconds": 1,
            });
            return Some((status, failure));
        }
        (state.has_forgotten(since) && state.gone == Gone::Status).then(|| ("410 Gone", expired()))
    }

    /// The last line of a watch that cannot go on, if it gets one.
    pub(super) fn last_line(&self) -> Option<String> {
        let event = json!({ "type": "ERROR", "object": expired() });
        (self.lock().gone == Gone::Event).then(|| event.to_string())
    }
}

impl State {
    /// Whether changes after `since` are not known any more. Nobody asks for those after 0.
    pub(super) fn has_forgotten(&self, since: u64) -> bool {
        since > 0 && since < self.oldest
    }
}

/// The body of an answer with a status line such as `403 Forbidden`.
fn failure(status: &str) -> Value {
    let (code, reason) = status.split_once(' ').unwrap_or((status, ""));
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("the test wants it: {reason}"),
        "reason": reason.replace(' ', ""),
        "code": code.parse::<u16>().unwrap_or_default(),
    })
}

fn expired() -> Value {
    let mut failure = failure("410 Gone");
    failure["reason"] = json!("Expired");
    failure["message"] = json!("too old resource version");
    failure
}
