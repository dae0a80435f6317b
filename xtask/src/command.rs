//! Runs other programs so that something is to be seen at least every five seconds.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache;

/// How long nothing may be seen on the terminal.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Runs a program that shows its own progress.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub(crate) fn shown(command: &mut Command) -> Result<()> {
    let name = text(command);
    println!("$ {name}");
    let status = command.status().with_context(|| format!("start {name}"))?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Runs a program whose output is of interest only when it fails. Says what it
/// is doing, that it still does, and how long it took.
///
/// # Errors
/// As [`shown`]; the end of the output is in the error.
pub(crate) fn quiet(what: &str, command: &mut Command) -> Result<()> {
    let log = cache::dir()?.join("last-command.log");
    let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let started = Instant::now();
    println!("  {what} ...");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("duplicate the log's descriptor")?)
        .stderr(file)
        .spawn()
        .with_context(|| format!("start {}", text(command)))?;
    let status = with_heartbeat(what, || child.wait()).context("wait for the program")?;
    if !status.success() {
        bail!("{}: {status}\n{}", text(command), tail(&log));
    }
    println!("  {what}: done in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn with_heartbeat(
    what: &str,
    wait: impl FnOnce() -> std::io::Result<ExitStatus>,
) -> std::io::Result<ExitStatus> {
    let (done, ticks) = mpsc::channel::<()>();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            while ticks.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                println!("  {what} ... {} s", started.elapsed().as_secs());
            }
        });
        let status = wait();
        drop(done);
        status
    })
}

/// The output of a short program, or nothing when it cannot be run or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Is a program on the search path?
pub(crate) fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

fn text(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// The last few kilobytes of a log.
pub(crate) fn tail(path: &Path) -> String {
    const TAIL_BYTES: i64 = 4096;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = i64::try_from(fs::metadata(path)?.len()).unwrap_or(i64::MAX);
        file.seek(SeekFrom::End(-length.min(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("(no log {}: {error})", path.display()))
}
