//! Service-account tokens of pods, renewed in time.

use std::collections::HashMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::objects::{ObjectError, Objects, Token};

/// Renewed after this at the latest, however long the token lives.
const LONGEST_USE: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    audience: Option<String>,
    seconds: i64,
}

#[derive(Debug)]
struct Held {
    token: Token,
    renew_at: Timestamp,
}

/// The tokens in use, by pod, audience and lifetime.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    held: Mutex<HashMap<Key, Held>>,
}

impl Tokens {
    /// A token that is valid now: the one in use, or a new one once four fifths of
    /// its life (or a day) have passed. One that cannot be renewed is used on to its end.
    pub(super) async fn current(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: i64,
        objects: &dyn Objects,
    ) -> Result<String, ObjectError> {
        let key = Key {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            audience: audience.map(Into::into),
            seconds,
        };
        let now = Timestamp::now();
        let held = self.lookup(&key);
        if let Some((token, renew_at)) = &held
            && now < *renew_at
        {
            return Ok(token.token.clone());
        }
        match (objects.token(pod, audience, seconds).await, held) {
            (Ok(token), _) => {
                let renew_at = renew_at(now, token.expires);
                let text = token.token.clone();
                self.lock().insert(key, Held { token, renew_at });
                Ok(text)
            }
            (Err(_), Some((token, _))) if now < token.expires => Ok(token.token),
            (Err(error), _) => Err(error),
        }
    }

    /// Drops the tokens of a pod that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().retain(|key, _| key.uid != uid);
    }

    fn lookup(&self, key: &Key) -> Option<(Token, Timestamp)> {
        self.lock()
            .get(key)
            .map(|held| (held.token.clone(), held.renew_at))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Held>> {
        // Nothing panics while it is held; a poisoned map is still a good map.
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn renew_at(now: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(now);
    let use_for = (life * 4 / 5).min(LONGEST_USE);
    now.checked_add(use_for).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_after_four_fifths_or_a_day() {
        let now = Timestamp::UNIX_EPOCH;
        let after = |hours| now + SignedDuration::from_hours(hours);
        assert_eq!(renew_at(now, after(10)), after(8));
        assert_eq!(renew_at(now, after(1000)), after(24));
    }
}
