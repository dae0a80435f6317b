//! What is wrong with an object, field by field.
//!
//! An API server refuses most of this before a node sees the object; a directory of
//! manifests has nobody else to do it. Only what a node acts on is looked at, and
//! nothing here is stricter than the API's own documentation, since admission refuses
//! by the same rules. What the agent does not have is in [`crate::support`].

mod container;
mod data;
mod names;
mod probe;
mod resources;
mod service;
mod volumes;

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use data::{config_map, secret};
pub use names::{is_dns_label, is_dns_subdomain};
pub use service::service;

/// One thing that is wrong; its `Display` is `path: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `spec.containers[0].image`.
    pub path: String,
    /// What is wrong there, for a person.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects what is found, in the order of the object.
#[derive(Debug, Default)]
struct Found(Vec<FieldError>);

impl Found {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldError {
            path: path.into(),
            message: message.into(),
        });
    }

    /// `value` must be in the closed range.
    fn range(&mut self, path: String, value: i64, least: i64, most: i64) {
        if value < least || value > most {
            let message = format!("{value} is not between {least} and {most}");
            self.add(path, message);
        }
    }

    fn port(&mut self, path: String, value: i32) {
        self.range(path, value.into(), 1, 65535);
    }

    /// `value` must be one of `known`; the empty text is the same as none.
    fn one_of(&mut self, path: String, value: Option<&String>, known: &[&str]) {
        if let Some(value) = value.filter(|v| !v.is_empty() && !known.contains(&v.as_str())) {
            let message = format!("{value:?} is none of {}", known.join(", "));
            self.add(path, message);
        }
    }

    fn dns_label(&mut self, path: String, value: &str) {
        if !is_dns_label(value) {
            self.add(path, format!("{value:?} is not a DNS label"));
        }
    }
}

/// Name and namespace, which become parts of paths.
pub fn metadata(metadata: &ObjectMeta) -> Vec<FieldError> {
    let mut found = Found::default();
    let name = metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        found.add("metadata.name", "required");
    } else if !is_dns_subdomain(name) {
        found.add("metadata.name", format!("{name:?} is not a DNS subdomain"));
    }
    if let Some(namespace) = &metadata.namespace {
        found.dns_label("metadata.namespace".into(), namespace);
    }
    found.0
}

/// What no API server lets pass.
pub fn pod(pod: &Pod) -> Vec<FieldError> {
    let mut found = Found::default();
    let Some(spec) = &pod.spec else {
        found.add("spec", "required");
        return found.0;
    };
    pod_fields(spec, &mut found);
    volumes::volumes(spec, &mut found);
    if spec.containers.is_empty() {
        found.add("spec.containers", "at least one is required");
    }
    let mut names = BTreeSet::new();
    for (path, item) in containers(spec) {
        container::container(&path, item, spec, &mut found);
        if !names.insert(&item.name) {
            let message = format!("{:?} is there twice", item.name);
            found.add(format!("{path}.name"), message);
        }
    }
    container::host_ports(spec, &mut found);
    found.0
}

/// What an API server lets pass although a node can only ignore it, or fail on it
/// again and again.
pub fn ineffective(pod: &Pod) -> Vec<FieldError> {
    let mut found = Found::default();
    let Some(spec) = &pod.spec else {
        return found.0;
    };
    if let Some(seconds) = spec.termination_grace_period_seconds
        && seconds < 0
    {
        let path = "spec.terminationGracePeriodSeconds";
        found.add(path, format!("{seconds} is negative"));
    }
    for (path, item) in containers(spec) {
        probe::named_ports(&path, item, &mut found);
    }
    found.0
}

fn containers(
    spec: &PodSpec,
) -> impl Iterator<Item = (String, &k8s_openapi::api::core::v1::Container)> {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, item)| (format!("spec.initContainers[{index}]"), item));
    let apps = spec.containers.iter().enumerate();
    init.chain(apps.map(|(index, item)| (format!("spec.containers[{index}]"), item)))
}

fn pod_fields(spec: &PodSpec, found: &mut Found) {
    let policies = ["Always", "OnFailure", "Never"];
    let policy = spec.restart_policy.as_ref();
    found.one_of("spec.restartPolicy".into(), policy, &policies);
    let policies = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    let policy = spec.dns_policy.as_ref();
    found.one_of("spec.dnsPolicy".into(), policy, &policies);
    let servers = spec
        .dns_config
        .as_ref()
        .and_then(|c| c.nameservers.as_ref());
    if policy.is_some_and(|p| p == "None") && servers.is_none_or(Vec::is_empty) {
        let message = "required where dnsPolicy is None";
        found.add("spec.dnsConfig.nameservers", message);
    }
    for (index, server) in servers.into_iter().flatten().enumerate() {
        address(
            format!("spec.dnsConfig.nameservers[{index}]"),
            server,
            found,
        );
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        address(format!("spec.hostAliases[{index}].ip"), &alias.ip, found);
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        let most = i64::from(i32::MAX);
        found.range("spec.activeDeadlineSeconds".into(), seconds, 1, most);
    }
    for (field, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            found.dns_label(format!("spec.{field}"), value);
        }
    }
    if let Some(overhead) = &spec.overhead {
        resources::quantities("spec.overhead", overhead, found);
    }
}

fn address(path: String, value: &str, found: &mut Found) {
    if value.parse::<std::net::IpAddr>().is_err() {
        found.add(path, format!("{value:?} is not an IP address"));
    }
}

#[cfg(test)]
mod tests;
