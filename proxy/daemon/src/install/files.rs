//! Files that others read at any moment: they see the old content or the new one.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// Beginning and end of the names of half-written files. No runtime calls or loads such a name.
const TEMPORARY: (&str, &str) = (".seaway-install-", ".tmp");

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}{}", path.display(), hint(source))]
pub(crate) struct FileError {
    operation: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// What root cannot know by the error alone.
fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (with SELinux it takes a privileged container, and labels as `restorecon -R` sets them)"
        }
        _ => "",
    }
}

pub(crate) fn failed(
    operation: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> FileError {
    let path = path.into();
    move |source| FileError {
        operation,
        path,
        source,
    }
}

/// A new file in `dir`, complete and on disk, that has no lasting name yet.
pub(crate) fn write_temporary(
    dir: &Path,
    content: &[u8],
    mode: u32,
) -> Result<TempPath, FileError> {
    let write = || -> io::Result<TempPath> {
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY.0)
            .suffix(TEMPORARY.1)
            .tempfile_in(dir)?;
        file.write_all(content)?;
        // Not by the mode of `open`, from which the umask takes away.
        file.as_file()
            .set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        Ok(file.into_temp_path())
    };
    write().map_err(failed("write a file into", dir))
}

/// Gives it its lasting name, in place of what has that name now.
pub(crate) fn rename(file: TempPath, path: &Path) -> Result<(), FileError> {
    file.persist(path)
        .map_err(|error| failed("replace", path)(error.error))?;
    sync_folder_of(path)
}

/// Makes the names in the folder of `path` outlive a loss of power.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), FileError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let sync = || File::open(dir)?.sync_all();
    sync().map_err(failed("sync directory", dir))
}

/// Makes `path` a file with this content, unless it is; tells whether it wrote.
pub(crate) fn ensure(path: &Path, content: &str) -> Result<bool, FileError> {
    match fs::read(path) {
        Ok(old) if old == content.as_bytes() => return Ok(false),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("read", path)(error));
        }
        _ => {}
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(failed("create directory", dir))?;
    let file = write_temporary(dir, content.as_bytes(), 0o644)?;
    rename(file, path)?;
    Ok(true)
}

/// Absent is fine; tells whether it was there.
pub(crate) fn remove(path: &Path) -> Result<bool, FileError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Whether anything has this name, be it a folder or a link that leads nowhere.
pub(crate) fn is_there(path: &Path) -> Result<bool, FileError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

/// Removes a folder if nothing is in it; tells whether it did.
pub(crate) fn remove_empty_folder(path: &Path) -> Result<bool, FileError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(failed("remove directory", path)(error)),
    }
}

/// Entries of a folder with their names; none where there is no folder.
pub(crate) fn list(dir: &Path) -> Result<Vec<(String, PathBuf)>, FileError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        entries => entries.map_err(failed("list", dir))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", dir))?;
        // Our own names are all text, and no other is meant by anybody here.
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes what killed runs have left half written; call with the folder locked.
pub(crate) fn remove_half_written(dir: &Path) -> Result<(), FileError> {
    for (name, path) in list(dir)? {
        if name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
