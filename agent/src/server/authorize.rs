//! Whether a caller may do what it asks: answered by the API server, remembered a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use super::identity::Identity;
use crate::api::error::within;

/// Members may do everything, which the API server decides without looking either
/// (`SystemPrivilegedGroup`); so logs and exec work while it is slow.
const PRIVILEGED_GROUP: &str = "system:masters";

/// How long a yes is remembered: `cacheAuthorizedTTL`.
const REMEMBER_ALLOWED: Duration = Duration::from_mins(5);

/// How long a no is remembered: `cacheUnauthorizedTTL`.
const REMEMBER_DENIED: Duration = Duration::from_secs(30);

/// Callers are few; this only bounds what a flood of names can cost.
const REMEMBERED: usize = 1024;

/// The caller waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a request asks for: a verb on a subresource of this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// `get`, `create`, …
    pub verb: &'static str,
    /// `proxy`, `pods`, …; the first that is allowed suffices.
    pub subresources: Vec<&'static str>,
}

impl Access {
    /// As kubelet maps methods and paths (`pkg/kubelet/server/auth.go`).
    pub fn of(method: &Method, path: &str) -> Self {
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        };
        let below = |prefix: &str| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let subresources = if below("/stats") {
            vec!["stats"]
        } else if below("/metrics") {
            vec!["metrics"]
        } else if below("/logs") {
            vec!["log"]
        } else if below("/pods") || below("/runningpods") {
            vec!["pods", "proxy"]
        } else if below("/healthz") {
            vec!["healthz", "proxy"]
        } else {
            vec!["proxy"]
        };
        Self { verb, subresources }
    }
}

/// Decides about callers.
pub trait Authorizer: Send + Sync + 'static {
    /// Whether `who` may have `access`; an error means that it cannot be found out.
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, kube::Error>>;
}

/// Asks the API server by SubjectAccessReview.
pub struct ApiAuthorizer {
    client: Client,
    node: String,
    known: Mutex<HashMap<(Identity, Access), (bool, Instant)>>,
}

impl std::fmt::Debug for ApiAuthorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiAuthorizer")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl ApiAuthorizer {
    /// For the API of `node`.
    pub fn new(client: Client, node: String) -> Self {
        Self {
            client,
            node,
            known: Mutex::default(),
        }
    }

    fn remembered(&self, key: &(Identity, Access)) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (allowed, until) = known.get(key)?;
        (Instant::now() < *until).then_some(*allowed)
    }

    fn remember(&self, key: (Identity, Access), allowed: bool) {
        let now = Instant::now();
        let until = now
            + if allowed {
                REMEMBER_ALLOWED
            } else {
                REMEMBER_DENIED
            };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_key, (_allowed, until)| now < *until);
        }
        if known.len() < REMEMBERED {
            known.insert(key, (allowed, until));
        }
    }

    async fn ask(&self, who: &Identity, access: &Access) -> Result<bool, kube::Error> {
        for subresource in &access.subresources {
            let review = review(who, &self.node, access.verb, subresource);
            let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
            let params = PostParams::default();
            let answer = within(REQUEST_TIMEOUT, api.create(&params, &review)).await?;
            if answer.status.is_some_and(|status| status.allowed) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Authorizer for ApiAuthorizer {
    fn allows<'a>(
        &'a self,
        who: &'a Identity,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, kube::Error>> {
        async move {
            if who.groups.iter().any(|group| group == PRIVILEGED_GROUP) {
                return Ok(true);
            }
            let key = (who.clone(), access.clone());
            if let Some(allowed) = self.remembered(&key) {
                return Ok(allowed);
            }
            let allowed = self.ask(who, access).await?;
            self.remember(key, allowed);
            Ok(allowed)
        }
        .boxed()
    }
}

fn review(who: &Identity, node: &str, verb: &str, subresource: &str) -> SubjectAccessReview {
    // A certificate's caller is authenticated, which is a group of its own.
    let groups = who
        .groups
        .iter()
        .cloned()
        .chain(["system:authenticated".to_owned()]);
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(who.user.clone()),
            groups: Some(groups.collect()),
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(node.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, path: &str, verb: &str, subresources: &[&str]) {
        let access = Access::of(method, path);
        assert_eq!(
            (access.verb, access.subresources.as_slice()),
            (verb, subresources),
            "{path}"
        );
    }

    #[test]
    fn paths_and_methods_as_kubelet_maps_them() {
        check(&Method::GET, "/containerLogs/a/b/c", "get", &["proxy"]);
        check(&Method::GET, "/exec/a/b/c", "get", &["proxy"]);
        check(&Method::POST, "/exec/a/b/c", "create", &["proxy"]);
        check(&Method::GET, "/metrics/resource", "get", &["metrics"]);
        check(&Method::GET, "/metricsx", "get", &["proxy"]);
        check(&Method::HEAD, "/pods", "get", &["pods", "proxy"]);
        check(&Method::GET, "/healthz", "get", &["healthz", "proxy"]);
    }

    #[test]
    fn the_review_is_about_this_node() {
        let who = Identity {
            user: "u".into(),
            groups: vec!["g".into()],
        };
        let spec = review(&who, "n1", "get", "proxy").spec;
        assert_eq!(spec.groups.unwrap(), ["g", "system:authenticated"]);
        let attributes = spec.resource_attributes.unwrap();
        assert_eq!(attributes.name.as_deref(), Some("n1"));
        assert_eq!(attributes.resource.as_deref(), Some("nodes"));
    }
}
