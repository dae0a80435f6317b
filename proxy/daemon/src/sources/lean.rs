//! A Service without what nobody here reads.
//!
//! A list is read as a whole, so one object that cannot be read would keep all others away, for
//! ever. Of Services there are such: `lastTransitionTime` of a condition must be there by the
//! schema, the API server does not insist on it, and controllers of load balancers have written
//! null. So conditions are not read at all.

use std::borrow::Cow;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service, ServiceSpec, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::Deserialize;

use super::{WatchResult, lasting_watch};

/// A [`Service`] as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LeanService {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<ServiceSpec>,
    status: Option<LeanStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanStatus {
    load_balancer: Option<LoadBalancerStatus>,
}

/// A [`lasting_watch`] of Services, without their conditions.
pub(super) fn services(
    api: Api<LeanService>,
    config: watcher::Config,
) -> BoxStream<'static, WatchResult<Service>> {
    lasting_watch(api, config)
        .map(|event| event.map(whole))
        .boxed()
}

fn whole(event: Event<LeanService>) -> Event<Service> {
    match event {
        Event::Apply(lean) => Event::Apply(lean.into()),
        Event::Delete(lean) => Event::Delete(lean.into()),
        Event::Init => Event::Init,
        Event::InitApply(lean) => Event::InitApply(lean.into()),
        Event::InitDone => Event::InitDone,
    }
}

impl From<LeanService> for Service {
    fn from(lean: LeanService) -> Self {
        Self {
            metadata: lean.metadata,
            spec: lean.spec,
            status: lean.status.map(|status| ServiceStatus {
                conditions: None,
                load_balancer: status.load_balancer,
            }),
        }
    }
}

impl Resource for LeanService {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(of: &()) -> Cow<'_, str> {
        Service::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        Service::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        Service::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        Service::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_that_breaks_the_schema_keeps_no_service_from_being_read() {
        let condition = |time| {
            let mut condition = json!({
                "type": "LoadBalancerPortsError", "status": "True", "reason": "x", "message": "",
            });
            if let Some(time) = time {
                condition["lastTransitionTime"] = time;
            }
            condition
        };
        let times = [None, Some(json!(null)), Some(json!("2026-01-01T00:00:00Z"))];
        for condition in times.map(condition) {
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": "default", "resourceVersion": "7"},
                "spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]},
                "status": {
                    "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]},
                    "conditions": [condition],
                },
            });
            let mut same = service.clone();
            same["status"]["conditions"].take();
            let read: LeanService = serde_json::from_value(service).unwrap();
            let want: Service = serde_json::from_value(same).unwrap();
            assert_eq!(Service::from(read), want);
        }
    }

    #[test]
    fn a_service_need_say_nothing() {
        let read: LeanService = serde_json::from_value(json!({"status": {}})).unwrap();
        let want: Service = serde_json::from_value(json!({"status": {}})).unwrap();
        assert_eq!(Service::from(read), want);
    }
}
