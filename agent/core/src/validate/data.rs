//! ConfigMaps and Secrets: their keys become names of files.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::names::is_data_key;
use super::{FieldError, Found};

/// What no API server lets pass.
pub fn config_map(config_map: &ConfigMap) -> Vec<FieldError> {
    let mut found = Found::default();
    let text = config_map.data.iter().flatten();
    keys("data", text.map(|(key, _)| key), &mut found);
    let binary = config_map.binary_data.iter().flatten().map(|(key, _)| key);
    keys("binaryData", binary.clone(), &mut found);
    for key in binary {
        if config_map
            .data
            .as_ref()
            .is_some_and(|d| d.contains_key(key))
        {
            found.add(format!("binaryData[{key}]"), "is in data, too");
        }
    }
    found.0
}

/// What no API server lets pass.
pub fn secret(secret: &Secret) -> Vec<FieldError> {
    let mut found = Found::default();
    let data = secret.data.iter().flatten();
    keys("data", data.map(|(key, _)| key), &mut found);
    let text = secret.string_data.iter().flatten();
    keys("stringData", text.map(|(key, _)| key), &mut found);
    found.0
}

fn keys<'a>(field: &str, keys: impl Iterator<Item = &'a String>, found: &mut Found) {
    for key in keys.filter(|key| !is_data_key(key)) {
        let message = "a key has only letters, digits, '-', '_' and '.', and no \"..\" in front";
        found.add(format!("{field}[{key}]"), message);
    }
}
