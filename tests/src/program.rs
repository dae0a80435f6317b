//! Scripts that a test writes and that are run at once.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run when this returns.
///
/// Another process does it, since nobody may run what somebody has open for writing
/// (`ETXTBSY` of execve(2)), and a child that another thread is just starting has a copy of
/// all that this process has open.
///
/// # Panics
/// When it cannot be written.
#[track_caller]
pub fn write_program(path: &Path, text: &str) {
    let mut child = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("start sh: {error}"));
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let written = stdin.write_all(text.as_bytes());
    drop(stdin);
    let status = child
        .wait()
        .unwrap_or_else(|error| panic!("wait for sh: {error}"));
    assert!(
        status.success() && written.is_ok(),
        "write {}: {status}, {written:?}",
        path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_whole_and_runs_and_takes_the_place_of_another() {
        let dir = tempfile::tempdir().unwrap();
        // As a shell would not take it for one word.
        let path = dir.path().join("say $1");
        for text in ["#!/bin/sh\nexit 7\n", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"] {
            write_program(&path, text);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let output = Command::new(&path).args(["a b", "c"]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a b\nc\n");
    }

    #[test]
    #[should_panic(expected = "/nowhere/program")]
    fn a_place_that_is_not_there_is_named() {
        write_program(Path::new("/nowhere/program"), "#!/bin/sh\n");
    }
}
