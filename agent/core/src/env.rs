//! A container's environment.
//!
//! Later wins: Services, then `envFrom`, then `env`. `$(NAME)` in a value refers to
//! what was defined before it.

mod services;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret, Service,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::expand::expand;
use crate::fields;

/// What values come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The ConfigMaps that exist, by name.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// The Secrets that exist, by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Services of the pod's namespace, and `default/kubernetes`.
    pub services: Vec<Service>,
    /// The node's, for limits that are not set.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// The ConfigMaps and Secrets that a container's environment names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
}

/// A value cannot be had (yet); the container waits with
/// `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The object does not exist.
    #[error("{kind} \"{name}\" not found")]
    NoObject {
        /// `configmap` or `secret`, the way kubelet words it.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object has no such key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// The value is no text.
    #[error("key {key} of {kind} {name} is not UTF-8, as an environment variable has to be")]
    NotText {
        /// `Secret`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// A field or resource reference is wrong.
    #[error("environment variable {variable}: {source}")]
    Field {
        /// The variable.
        variable: String,
        /// What is wrong; part of the text, because the text is all that reaches
        /// the pod's owner.
        source: fields::FieldError,
    },
}

/// What has to be fetched before [`resolve`].
pub fn references(container: &Container) -> References {
    let mut found = References::default();
    for from in container.env_from.iter().flatten() {
        found
            .config_maps
            .extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
        found
            .secrets
            .extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
    }
    for from in container
        .env
        .iter()
        .flatten()
        .filter_map(|env| env.value_from.as_ref())
    {
        found
            .config_maps
            .extend(from.config_map_key_ref.as_ref().map(|r| r.name.clone()));
        found
            .secrets
            .extend(from.secret_key_ref.as_ref().map(|r| r.name.clone()));
    }
    found
}

/// The environment of `container`, in order of definition; `pod` carries the
/// status (addresses) that field references may show.
pub fn resolve(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut env = Environment {
        pod,
        container,
        sources,
        vars: Vec::new(),
    };
    env.vars = services::variables(pod, &sources.services);
    env.add_from()?;
    for var in container.env.iter().flatten() {
        if let Some(value) = env.value(var)? {
            env.set(var.name.clone(), value);
        }
    }
    Ok(env.vars)
}

struct Environment<'a> {
    pod: &'a Pod,
    container: &'a Container,
    sources: &'a Sources,
    vars: Vec<(String, String)>,
}

impl Environment<'_> {
    fn set(&mut self, name: String, value: String) {
        match self.vars.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = value,
            None => self.vars.push((name, value)),
        }
    }

    fn get(&self, name: &str) -> Option<String> {
        self.vars
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.clone())
    }

    fn add_from(&mut self) -> Result<(), EnvError> {
        let sources = self.sources;
        for from in self.container.env_from.iter().flatten() {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            if let Some(r) = &from.config_map_ref {
                let Some(map) = object(&sources.config_maps, "configmap", &r.name, r.optional)?
                else {
                    continue;
                };
                for (key, value) in map.data.iter().flatten() {
                    self.set(format!("{prefix}{key}"), value.clone());
                }
            }
            if let Some(r) = &from.secret_ref {
                let Some(secret) = object(&sources.secrets, "secret", &r.name, r.optional)? else {
                    continue;
                };
                for (key, value) in secret.data.iter().flatten() {
                    let value = text(&value.0, &r.name, key)?;
                    self.set(format!("{prefix}{key}"), value);
                }
            }
        }
        Ok(())
    }

    /// The value of one `env` entry; `None` for an optional one that is missing.
    fn value(&self, var: &EnvVar) -> Result<Option<String>, EnvError> {
        if let Some(from) = &var.value_from {
            return self.value_from(&var.name, from);
        }
        let text = var.value.as_deref().unwrap_or_default();
        Ok(Some(expand(text, |name| self.get(name))))
    }

    fn value_from(&self, variable: &str, from: &EnvVarSource) -> Result<Option<String>, EnvError> {
        let field = |source| EnvError::Field {
            variable: variable.to_owned(),
            source,
        };
        let namespace = crate::spec::namespace(self.pod);
        let no_key = |kind, name: &str, key: &str| EnvError::NoKey {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        };
        if let Some(r) = &from.field_ref {
            return fields::field_value(self.pod, &r.field_path)
                .map(Some)
                .map_err(field);
        }
        if let Some(r) = &from.resource_field_ref {
            let name = Some(self.container.name.as_str());
            let allocatable = &self.sources.allocatable;
            return fields::resource_value(self.pod, name, r, allocatable)
                .map(Some)
                .map_err(field);
        }
        if let Some(r) = &from.config_map_key_ref {
            let map = object(&self.sources.config_maps, "configmap", &r.name, r.optional)?;
            let value = map.and_then(|map| map.data.as_ref()?.get(&r.key).cloned());
            return match value {
                None if r.optional != Some(true) => Err(no_key("ConfigMap", &r.name, &r.key)),
                value => Ok(value),
            };
        }
        if let Some(r) = &from.secret_key_ref {
            let secret = object(&self.sources.secrets, "secret", &r.name, r.optional)?;
            let value = secret.and_then(|secret| secret.data.as_ref()?.get(&r.key));
            return match value {
                None if r.optional != Some(true) => Err(no_key("Secret", &r.name, &r.key)),
                None => Ok(None),
                Some(value) => text(&value.0, &r.name, &r.key).map(Some),
            };
        }
        Ok(Some(String::new()))
    }
}

fn object<'a, T>(
    objects: &'a BTreeMap<String, T>,
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a T>, EnvError> {
    match objects.get(name) {
        None if optional != Some(true) => Err(EnvError::NoObject {
            kind,
            name: name.to_owned(),
        }),
        found => Ok(found),
    }
}

fn text(bytes: &[u8], name: &str, key: &str) -> Result<String, EnvError> {
    String::from_utf8(bytes.to_vec()).map_err(|_invalid| EnvError::NotText {
        kind: "Secret",
        name: name.to_owned(),
        key: key.to_owned(),
    })
}
