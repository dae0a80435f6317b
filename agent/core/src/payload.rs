//! What the files of a configMap, secret, downwardAPI or projected volume are.
//!
//! Pure: objects in, files out. Fetching the objects and writing the files is
//! somebody else's job.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret};

/// Mode of a file whose volume names none (`defaultMode`, API default).
pub const DEFAULT_MODE: i32 = 0o644;

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadFile {
    /// Content.
    pub content: Vec<u8>,
    /// Permission bits, `0o000` to `0o777`.
    pub mode: u32,
    /// Owner, where it is not root (service-account tokens of non-root pods).
    pub owner: Option<u32>,
}

/// Files of a volume by path relative to its root.
pub type Payload = BTreeMap<String, PayloadFile>;

/// An object's content cannot become files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// A path leaves the volume or uses a reserved name.
    #[error("path {path:?} in volume {volume}: must be relative, without \"..\"")]
    BadPath {
        /// Volume name.
        volume: String,
        /// The offending path.
        path: String,
    },
    /// `items` names a key that the object does not have.
    #[error("references non-existent {object} key: {key}")]
    MissingKey {
        /// `config` or `secret`.
        object: &'static str,
        /// The key.
        key: String,
    },
    /// A mode is not a set of permission bits.
    #[error("mode {mode:#o} in volume {volume}: must be between 0 and 0777")]
    BadMode {
        /// Volume name.
        volume: String,
        /// The mode.
        mode: i32,
    },
}

/// How keys of one object become files.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// Volume name, for errors.
    pub volume: &'a str,
    /// `items`; `None` or empty takes every key under its own name.
    pub items: Option<&'a [KeyToPath]>,
    /// `defaultMode`.
    pub default_mode: i32,
    /// `optional`: a missing key is left out instead of being an error.
    pub optional: bool,
}

/// The files of a ConfigMap: `data` and `binaryData`.
pub fn from_config_map(
    object: &ConfigMap,
    selection: Selection<'_>,
) -> Result<Payload, PayloadError> {
    let text = object
        .data
        .iter()
        .flatten()
        .map(|(k, v)| (k.as_str(), v.as_bytes()));
    let binary = bytes_of(object.binary_data.as_ref());
    select("config", text.chain(binary).collect(), selection)
}

/// The files of a Secret's `data`.
pub fn from_secret(object: &Secret, selection: Selection<'_>) -> Result<Payload, PayloadError> {
    select(
        "secret",
        bytes_of(object.data.as_ref()).collect(),
        selection,
    )
}

fn bytes_of(map: Option<&BTreeMap<String, ByteString>>) -> impl Iterator<Item = (&str, &[u8])> {
    map.into_iter()
        .flatten()
        .map(|(k, v)| (k.as_str(), v.0.as_slice()))
}

fn select(
    object: &'static str,
    data: BTreeMap<&str, &[u8]>,
    selection: Selection<'_>,
) -> Result<Payload, PayloadError> {
    let mut payload = Payload::new();
    let items = selection.items.unwrap_or_default();
    if items.is_empty() {
        for (key, content) in data {
            insert(
                &mut payload,
                selection.volume,
                key,
                content,
                selection.default_mode,
            )?;
        }
        return Ok(payload);
    }
    for item in items {
        let Some(content) = data.get(item.key.as_str()) else {
            if selection.optional {
                continue;
            }
            return Err(PayloadError::MissingKey {
                object,
                key: item.key.clone(),
            });
        };
        let mode = item.mode.unwrap_or(selection.default_mode);
        insert(&mut payload, selection.volume, &item.path, content, mode)?;
    }
    Ok(payload)
}

/// Adds one file, checking its path and mode.
pub fn insert(
    payload: &mut Payload,
    volume: &str,
    path: &str,
    content: &[u8],
    mode: i32,
) -> Result<(), PayloadError> {
    if !is_inside(path) {
        return Err(PayloadError::BadPath {
            volume: volume.into(),
            path: path.into(),
        });
    }
    let mode = u32::try_from(mode)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| PayloadError::BadMode {
            volume: volume.into(),
            mode,
        })?;
    payload.insert(
        path.into(),
        PayloadFile {
            content: content.into(),
            mode,
            owner: None,
        },
    );
    Ok(())
}

/// Whether a path stays inside the volume and off the names the writer reserves
/// (those that begin with two dots).
pub(crate) fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.starts_with("..")
        && path.split('/').all(|part| part != "..")
}

/// The text of a labels or annotations file: sorted `key="escaped value"` lines,
/// without a newline at the end.
pub fn format_map(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", serde_json::Value::from(value.as_str())))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> ConfigMap {
        ConfigMap {
            data: Some([("a".into(), "1".into()), ("b".into(), "2".into())].into()),
            binary_data: Some([("bin".into(), ByteString(vec![0, 255]))].into()),
            ..ConfigMap::default()
        }
    }

    fn all() -> Selection<'static> {
        Selection {
            volume: "v",
            items: None,
            default_mode: 0o640,
            optional: false,
        }
    }

    fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
        KeyToPath {
            key: key.into(),
            path: path.into(),
            mode,
        }
    }

    #[test]
    fn takes_every_key_with_the_default_mode() {
        let payload = from_config_map(&config_map(), all()).unwrap();
        assert_eq!(payload.keys().collect::<Vec<_>>(), ["a", "b", "bin"]);
        assert_eq!(payload["bin"].content, [0, 255]);
        assert!(payload.values().all(|file| file.mode == 0o640));
    }

    #[test]
    fn items_choose_keys_paths_and_modes() {
        let items = [item("b", "deep/b.txt", Some(0o400)), item("a", "a", None)];
        let payload = from_config_map(
            &config_map(),
            Selection {
                items: Some(&items),
                ..all()
            },
        )
        .unwrap();
        assert_eq!(payload.keys().collect::<Vec<_>>(), ["a", "deep/b.txt"]);
        assert_eq!(payload["deep/b.txt"].mode, 0o400);
        assert_eq!(payload["a"].mode, 0o640);
    }

    #[test]
    fn a_missing_key_is_an_error_unless_optional() {
        let items = [item("nope", "x", None)];
        let selection = Selection {
            items: Some(&items),
            ..all()
        };
        let error = from_config_map(&config_map(), selection).unwrap_err();
        assert_eq!(
            error.to_string(),
            "references non-existent config key: nope"
        );
        let payload = from_config_map(
            &config_map(),
            Selection {
                optional: true,
                ..selection
            },
        )
        .unwrap();
        assert!(payload.is_empty());
    }

    #[test]
    fn refuses_paths_that_leave_the_volume() {
        for path in ["", "/etc/passwd", "../x", "a/../../x", "..data", "..2026"] {
            let mut payload = Payload::new();
            let result = insert(&mut payload, "v", path, b"", 0o644);
            assert!(
                matches!(result, Err(PayloadError::BadPath { .. })),
                "{path}"
            );
        }
        assert!(insert(&mut Payload::new(), "v", "a..b/c", b"", 0o644).is_ok());
    }

    #[test]
    fn refuses_modes_outside_the_permission_bits() {
        for mode in [-1, 0o1777] {
            let result = insert(&mut Payload::new(), "v", "a", b"", mode);
            assert!(
                matches!(result, Err(PayloadError::BadMode { .. })),
                "{mode}"
            );
        }
    }

    #[test]
    fn maps_are_written_as_sorted_quoted_lines() {
        let map = [
            ("b".to_owned(), "two\n\"x\"".to_owned()),
            ("a".to_owned(), "1".to_owned()),
        ];
        let text = format_map(Some(&map.into()));
        assert_eq!(text, "a=\"1\"\nb=\"two\\n\\\"x\\\"\"");
        assert_eq!(format_map(None), "");
    }
}
