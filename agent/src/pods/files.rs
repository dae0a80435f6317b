//! The agent's own files of a pod: hosts file, termination messages, logs.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest termination message (Kubernetes API, `terminationMessagePath`).
const MAX_MESSAGE: u64 = 4096;
/// How much of the log stands in for it.
const MAX_LOG_TAIL: u64 = 2048;

/// Where the hosts file of a pod is.
pub(super) fn hosts_file(pod_dir: &Path) -> PathBuf {
    pod_dir.join("etc-hosts")
}

/// Where the last words of one container instance are.
pub(super) fn termination_file(pod_dir: &Path, container: &str, attempt: u32) -> PathBuf {
    pod_dir
        .join("containers")
        .join(container)
        .join(attempt.to_string())
}

/// Writes a file that containers bind: in place, for a rename would leave them
/// with the old one.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

/// An empty file that any user of a container may write.
pub(super) fn create_termination_file(path: &Path) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, "")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
}

/// What an ended container left as its last words: the file, or the end of `log`
/// where there is one and the file is empty.
pub(super) fn last_words(file: &Path, log: Option<&Path>) -> Option<String> {
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).ok();
    if let Some(opened) = opened
        && opened.take(MAX_MESSAGE).read_to_end(&mut bytes).is_ok()
        && !bytes.is_empty()
    {
        return Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    log_tail(log?)
}

/// The end of a CRI log, without its time and stream columns.
fn log_tail(log: &Path) -> Option<String> {
    let mut file = fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    // Columns take room too; read more than is shown.
    file.seek(SeekFrom::Start(length.saturating_sub(4 * MAX_LOG_TAIL)))
        .ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let mut out = String::new();
    for line in text.lines() {
        let mut columns = line.splitn(4, ' ');
        let (Some(_time), Some(_stream), Some(tag), Some(content)) = (
            columns.next(),
            columns.next(),
            columns.next(),
            columns.next(),
        ) else {
            continue;
        };
        out.push_str(content);
        if tag == "F" {
            out.push('\n');
        }
    }
    let limit = usize::try_from(MAX_LOG_TAIL).unwrap_or(usize::MAX);
    let mut start = out.len().saturating_sub(limit);
    while !out.is_char_boundary(start) {
        start += 1;
    }
    (!out.is_empty()).then(|| out.split_off(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_come_from_the_file_then_from_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let file = termination_file(dir.path(), "c", 2);
        create_termination_file(&file).unwrap();
        assert_eq!(last_words(&file, None), None);
        let log = dir.path().join("2.log");
        fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n").unwrap();
        assert_eq!(last_words(&file, Some(&log)).as_deref(), Some("one\ntwo\n"));
        fs::write(&file, "bye").unwrap();
        assert_eq!(last_words(&file, Some(&log)).as_deref(), Some("bye"));
    }

    #[test]
    fn bound_files_are_written_in_place() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = hosts_file(&dir.path().join("uid"));
        write(&path, "a").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        write(&path, "b").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
    }
}
