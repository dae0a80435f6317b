//! hostPath volumes: the `type` check, and what `*OrCreate` creates.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

/// A hostPath is not what its `type` demands.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// Something else, or nothing, is there.
    #[error("hostPath type check failed: {path} is not a {expected}")]
    WrongType {
        /// The path on the node.
        path: String,
        /// What it should be: `directory`.
        expected: &'static str,
    },
    /// Not one of the API's types.
    #[error("hostPath type {kind:?} of {path} is not known")]
    UnknownType {
        /// The path on the node.
        path: String,
        /// The type.
        kind: String,
    },
    /// It could not be created.
    #[error("create hostPath {path}")]
    Create {
        /// The path on the node.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Checks `path` against `kind`, creating it where the type says so.
///
/// Types and modes: Kubernetes API, `HostPathVolumeSource.type`.
pub(super) fn check(path: &Path, kind: &str) -> Result<(), HostPathError> {
    let shown = path.display().to_string();
    let create = |result: io::Result<()>| {
        result.map_err(|source| HostPathError::Create {
            path: shown.clone(),
            source,
        })
    };
    let file_type = fs::metadata(path).ok().map(|meta| meta.file_type());
    let is = |test: fn(&fs::FileType) -> bool| file_type.as_ref().is_some_and(test);
    let (fits, expected) = match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if file_type.is_none() => {
            return create(fs::create_dir_all(path).and_then(|()| set_mode(path, 0o755)));
        }
        "FileOrCreate" if file_type.is_none() => {
            return create(fs::File::create_new(path).and_then(|_| set_mode(path, 0o644)));
        }
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        other => {
            return Err(HostPathError::UnknownType {
                path: shown,
                kind: other.into(),
            });
        }
    };
    if fits {
        Ok(())
    } else {
        Err(HostPathError::WrongType {
            path: shown,
            expected,
        })
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn creates_only_what_the_type_says() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("a/b");
        check(&made, "DirectoryOrCreate").unwrap();
        assert!(made.is_dir());
        check(&made.join("f"), "FileOrCreate").unwrap();
        assert!(made.join("f").is_file());
        check(&dir.path().join("none"), "").unwrap();
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn a_mismatch_names_the_path_and_the_type() {
        let dir = tempfile::tempdir().unwrap();
        let error = check(&dir.path().join("none"), "Directory").unwrap_err();
        assert!(
            error.to_string().contains("none is not a directory"),
            "{error}"
        );
        let error = check(dir.path(), "File").unwrap_err();
        assert!(error.to_string().ends_with("is not a file"), "{error}");
        let error = check(dir.path(), "Nonsense").unwrap_err();
        assert!(error.to_string().contains("\"Nonsense\""), "{error}");
    }

    #[test]
    fn sockets_and_devices_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        check(&path, "Socket").unwrap();
        check(Path::new("/dev/null"), "CharDevice").unwrap();
        assert!(check(&path, "CharDevice").is_err());
    }
}
