//! Reading one field, with an error that names it.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Object;
use crate::error::Error;

/// The specification lets plugins refuse keys that they do not know, and a
/// misspelt one must not be overlooked. Namespaced keys (`cni.dev/attachments`,
/// `io.kubernetes.x`) are the runtime's, and with an underscore people write
/// comments.
pub(super) fn known(object: &Object, path: &str, keys: &[&str]) -> Result<(), Error> {
    known_as(object, path, keys, |key, known| key == known)
}

/// The same for what runtimes spell as they like.
pub(crate) fn known_in_any_case(object: &Object, path: &str, keys: &[&str]) -> Result<(), Error> {
    known_as(object, path, keys, str::eq_ignore_ascii_case)
}

fn known_as(
    object: &Object,
    path: &str,
    keys: &[&str],
    same: impl Fn(&str, &str) -> bool,
) -> Result<(), Error> {
    let foreign = |key: &str| key.contains(['/', '.']) || key.starts_with('_');
    let is_known = |key: &str| keys.iter().any(|known| same(key, known));
    match object.keys().find(|key| !is_known(key) && !foreign(key)) {
        Some(key) => Err(config(
            &format!("{path}{key}"),
            format!("unknown key, not one of {}", keys.join(", ")),
        )),
        None => Ok(()),
    }
}

pub(crate) fn required<T: DeserializeOwned>(
    object: &Object,
    key: &str,
    path: &str,
) -> Result<T, Error> {
    optional(object, key, path)?.ok_or_else(|| config(path, "is required"))
}

pub(crate) fn optional<T: DeserializeOwned>(
    object: &Object,
    key: &str,
    path: &str,
) -> Result<Option<T>, Error> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value, path).map(Some),
    }
}

pub(crate) fn read<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, Error> {
    T::deserialize(value).map_err(|error| config(path, format!("{error}, got {value}")))
}

pub(crate) fn config(key: &str, why: impl Into<String>) -> Error {
    Error::Config {
        key: key.to_owned(),
        why: why.into(),
    }
}

pub(crate) fn unsupported(key: &str, value: &str) -> Error {
    Error::UnsupportedField {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

pub(super) fn is_file_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains('/')
}

/// `path` ends in the key.
pub(super) fn absolute(object: &Object, path: &str, default: &str) -> Result<PathBuf, Error> {
    Ok(optional_path(object, path)?.unwrap_or_else(|| default.into()))
}

/// `path` ends in the key.
pub(super) fn optional_path(object: &Object, path: &str) -> Result<Option<PathBuf>, Error> {
    let key = path.rsplit('.').next().unwrap_or(path);
    let value: Option<PathBuf> = optional(object, key, path)?;
    match value {
        Some(value) if !value.is_absolute() => {
            let why = format!("{} is not an absolute path", value.display());
            Err(config(path, why))
        }
        value => Ok(value),
    }
}
