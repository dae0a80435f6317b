//! What goes into a machine: programs, and what to run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::image::run;
use crate::{bin, cargo, images, temporary};

/// The second drive of a machine, mounted at `/seaway`: `bin/` our programs, `tests/` test
/// programs, `files/` texts, `cache/` container images.
#[derive(Debug, Default)]
pub struct Payload {
    programs: Vec<(String, PathBuf)>,
    tests: Vec<(String, PathBuf)>,
    files: Vec<(String, String)>,
    runs: Vec<(String, String)>,
}

impl Payload {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one of our programs, such as `seaway-cni`, as `/seaway/bin/NAME`.
    #[must_use]
    #[track_caller]
    pub fn program(mut self, name: &str) -> Self {
        self.programs.push((name.to_owned(), bin(name)));
        self
    }

    /// Adds a test program as `/seaway/tests/NAME`.
    #[must_use]
    pub fn test(mut self, name: &str, path: &Path) -> Self {
        self.tests.push((name.to_owned(), path.to_owned()));
        self
    }

    /// Adds a text as `/seaway/files/NAME`.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds a command (a line of shell) to be run.
    #[must_use]
    pub fn run(mut self, name: &str, script: &str) -> Self {
        self.runs.push((name.to_owned(), script.to_owned()));
        self
    }

    /// How many commands there are.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Makes the drive.
    pub(super) fn write(&self, drive: &Path) -> Result<()> {
        let dir = temporary("payload")?;
        for name in ["bin", "files", "tests", "runs"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        for (folder, files) in [("bin", &self.programs), ("tests", &self.tests)] {
            for (name, path) in files {
                let target = dir.path().join(folder).join(name);
                // Names of functions, which a backtrace shows, are not stripped.
                run(Command::new("strip")
                    .args(["--strip-debug", "-o"])
                    .args([&target, path]))?;
            }
        }
        for (index, (name, script)) in self.runs.iter().enumerate() {
            std::fs::write(dir.path().join(format!("runs/{index:03}-{name}")), script)?;
        }
        let cache = dir.path().join("cache/images");
        std::fs::create_dir_all(&cache)?;
        for image in [images::pause(&[])?, images::busybox(&[])?] {
            let name = image.file_name().context("an image has a name")?;
            std::fs::copy(&image, cache.join(name))?;
        }
        // The image's name in the cache is computed from this very program.
        std::fs::copy("/usr/bin/busybox", dir.path().join("busybox"))?;
        for (name, text) in [
            ("init", include_str!("init.sh")),
            ("runs.sh", include_str!("runs.sh")),
        ] {
            let script = dir.path().join(name);
            std::fs::write(&script, text)?;
            run(Command::new("chmod").args(["755"]).arg(&script))?;
        }
        for (name, text) in &self.files {
            std::fs::write(dir.path().join("files").join(name), text)?;
        }
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-d"])
            .args([dir.path(), drive])
            .arg("1G"))
    }
}

/// The compiled suites of the test bed whose file names begin with one of `prefixes`.
///
/// # Errors
/// When they cannot be compiled.
pub fn suites(prefixes: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let output = cargo()
        .args(["test", "--workspace", "--no-run", "--message-format=json"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .context("start cargo")?;
    if !output.status.success() {
        bail!(
            "cargo test --no-run: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).context("cargo's messages")?;
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let is_test = message["target"]["kind"] == serde_json::json!(["test"]);
        if is_test
            && prefixes.iter().any(|prefix| name.starts_with(prefix))
            && let Some(path) = message["executable"].as_str()
        {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    found.sort();
    Ok(found)
}
