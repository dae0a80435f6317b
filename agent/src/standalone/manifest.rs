//! Reads a manifest file: YAML with any number of documents, or JSON.
//!
//! An unknown field is an error, as `kubectl --validate=strict` sees it: a misspelt
//! `readinessProb` that is silently ignored is worse than a refusal.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::validate;

/// What can stand in the directory.
pub(super) const KINDS: &str = "Pod, Service, ConfigMap, Secret (v1)";

/// An object of a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) enum Object {
    Pod(Box<Pod>),
    Service(Box<Service>),
    ConfigMap(ConfigMap),
    Secret(Secret),
}

/// What there can be only one of: `Pod default/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Object {
    pub(super) fn id(&self) -> ObjectId {
        match self {
            Self::Pod(pod) => ObjectId::of(&pod.metadata, "Pod"),
            Self::Service(service) => ObjectId::of(&service.metadata, "Service"),
            Self::ConfigMap(config_map) => ObjectId::of(&config_map.metadata, "ConfigMap"),
            Self::Secret(secret) => ObjectId::of(&secret.metadata, "Secret"),
        }
    }
}

impl ObjectId {
    pub(super) fn of(metadata: &ObjectMeta, kind: &'static str) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// `namespace/name`
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What is wrong with a file; its `Display` is one line that names the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}{separator}{problem}", separator = if field.is_empty() { "" } else { ": " })]
pub(super) struct ManifestError {
    /// `Pod default/web`, or `document 2` while that is not known.
    pub(super) object: String,
    /// `spec.containers[0].image`; empty where it is the whole object.
    pub(super) field: String,
    /// What is wrong there.
    pub(super) problem: String,
}

/// All objects of a file, complete with the API server's defaults and checked.
pub(super) fn parse(text: &str) -> Result<Vec<Object>, ManifestError> {
    let mut objects = Vec::new();
    for (index, document) in documents(text)?.into_iter().enumerate() {
        let name = format!("document {}", index + 1);
        if document.get("kind").and_then(Value::as_str) == Some("List") {
            for (index, item) in list_items(document, &name)?.into_iter().enumerate() {
                objects.push(object(item, &format!("{name}, item {}", index + 1))?);
            }
        } else if !document.is_null() {
            objects.push(object(document, &name)?);
        }
    }
    let mut ids = BTreeSet::new();
    match objects.iter().find(|object| !ids.insert(object.id())) {
        Some(twice) => Err(error(&twice.id().to_string(), "", "is there twice")),
        None => Ok(objects),
    }
}

fn documents(text: &str) -> Result<Vec<Value>, ManifestError> {
    // JSON is YAML, and `0644` is octal in Kubernetes' YAML (1.1) as it always was.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| ManifestError {
        object: "file".to_owned(),
        field: String::new(),
        problem: format!("not YAML: {}", error.to_string().replace('\n', " ")),
    })
}

fn list_items(mut list: Value, name: &str) -> Result<Vec<Value>, ManifestError> {
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(error(name, "items", "expected a list")),
    }
}

fn object(value: Value, place: &str) -> Result<Object, ManifestError> {
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (version, kind) = (text("/apiVersion").to_owned(), text("/kind").to_owned());
    if !value.is_object() || kind.is_empty() {
        return Err(error(place, "kind", "missing"));
    }
    let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    let name = format!(
        "{kind} {}/{}",
        namespace.unwrap_or("default"),
        text("/metadata/name")
    );
    if version != "v1" {
        return Err(error(
            &name,
            "apiVersion",
            &format!("{version:?} is none of {KINDS}"),
        ));
    }
    let object = match kind.as_str() {
        "Pod" => Object::Pod(Box::new(read(value, &name)?)),
        "Service" => Object::Service(Box::new(read(value, &name)?)),
        "ConfigMap" => Object::ConfigMap(read(value, &name)?),
        "Secret" => Object::Secret(read(value, &name)?),
        _ => {
            return Err(error(
                &name,
                "kind",
                &format!("{kind:?} is none of {KINDS}"),
            ));
        }
    };
    complete(object, &name)
}

/// Reads a typed object; a wrong type and an unknown field both name their path.
fn read<T: DeserializeOwned>(value: Value, name: &str) -> Result<T, ManifestError> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let mut unknown = None;
    let object = serde_ignored::deserialize(deserializer, |path| {
        unknown.get_or_insert_with(|| path_text(&path));
    });
    match (object, unknown) {
        (Ok(object), None) => Ok(object),
        (Ok(_), Some(field)) => Err(error(name, &field, "unknown field")),
        (Err(problem), _) => {
            let field = track.path().to_string();
            Err(error(
                name,
                if field == "." { "" } else { &field },
                &problem.to_string(),
            ))
        }
    }
}

/// `spec.containers[0].imagee`
fn path_text(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Map { parent, key } => match path_text(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => path_text(parent),
    }
}

/// Defaults first: what is checked is what runs.
fn complete(mut object: Object, name: &str) -> Result<Object, ManifestError> {
    let metadata = match &mut object {
        Object::Pod(pod) => &mut pod.metadata,
        Object::Service(service) => &mut service.metadata,
        Object::ConfigMap(config_map) => &mut config_map.metadata,
        Object::Secret(secret) => &mut secret.metadata,
    };
    metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    let checked = validate::metadata(metadata).and_then(|()| match &mut object {
        Object::Pod(pod) => {
            super::defaults::pod(pod);
            validate::pod(pod)
        }
        Object::Service(service) => {
            super::defaults::service(service);
            validate::service(service)
        }
        Object::Secret(secret) => {
            validate::secret(secret)?;
            let plain = secret.string_data.take().into_iter().flatten();
            let plain = plain.map(|(key, text)| (key, ByteString(text.into_bytes())));
            secret.data.get_or_insert_default().extend(plain);
            Ok(())
        }
        Object::ConfigMap(config_map) => validate::config_map(config_map),
    });
    checked.map_err(|(field, problem)| error(name, &field, &problem))?;
    Ok(object)
}

fn error(object: &str, field: &str, problem: &str) -> ManifestError {
    ManifestError {
        object: object.to_owned(),
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests;
