//! Container images, built here from what Debian has; no registry is asked.
//!
//! An image is one OCI archive, the same bytes for the same content, kept in the cache
//! outside of the work tree. It deliberately builds no more than one layer.

mod archive;
pub(crate) mod e2e;
mod product;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::cache_dir;

pub use product::{SEAWAY, product};

/// The sandbox image of test nodes.
pub const PAUSE: &str = "seaway.test/pause:1";
/// The image of test containers: a shell, `httpd`, `wget`, `nc` and so on.
pub const BUSYBOX: &str = "seaway.test/busybox:1";

/// Debian's `busybox-static`.
const BUSYBOX_PROGRAM: &str = "/usr/bin/busybox";
/// Where an image looks for programs.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an image consists of.
#[derive(Debug, Clone)]
pub struct ImageSpec {
    /// Full names with tags; the archive has the image once, under each of them.
    pub names: Vec<String>,
    /// The folder that becomes its root file system, owners and modes included.
    pub rootfs: PathBuf,
    /// The program that always runs, with its first arguments.
    pub entrypoint: Vec<String>,
    /// The arguments (or, without an entry point, the program) that a pod may replace.
    pub cmd: Vec<String>,
    /// `NAME=VALUE`, besides a usual `PATH`.
    pub env: Vec<String>,
    /// `uid[:gid]` or a name from its `/etc/passwd`; empty is root.
    pub user: String,
    /// Where its program starts; empty is `/`.
    pub working_dir: String,
}

impl ImageSpec {
    /// An image of the given names that runs as root, with nothing to run yet.
    #[must_use]
    pub fn new(names: &[&str], rootfs: impl Into<PathBuf>) -> Self {
        Self {
            names: names.iter().map(ToString::to_string).collect(),
            rootfs: rootfs.into(),
            entrypoint: Vec::new(),
            cmd: Vec::new(),
            env: Vec::new(),
            user: String::new(),
            working_dir: String::new(),
        }
    }

    /// Writes the image as an OCI archive that containerd, podman and skopeo read.
    ///
    /// # Errors
    /// When the root file system cannot be read or `path` cannot be written; `path` then has
    /// its old content.
    pub fn write_oci_archive(&self, path: &Path) -> Result<()> {
        archive::write(self, path).with_context(|| format!("build image {}", self.names.join(", ")))
    }

    /// The image configuration of the OCI image specification, 1.1.
    fn config(&self, layer_digest: &str) -> serde_json::Value {
        let env: Vec<&str> = std::iter::once(PATH)
            .chain(self.env.iter().map(String::as_str))
            .collect();
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Env": env,
                "Entrypoint": self.entrypoint,
                "Cmd": self.cmd,
                "User": self.user,
                "WorkingDir": self.working_dir,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        })
    }
}

/// The OCI archive of the sandbox image, under [`PAUSE`] and under the given names.
///
/// # Errors
/// When it is not in the cache and cannot be built: no C compiler.
pub fn pause(names: &[&str]) -> Result<PathBuf> {
    let source = include_str!("images/pause.c");
    let names: Vec<&str> = [&[PAUSE], names].concat();
    cached(
        "pause",
        &[source.as_bytes(), names.join(" ").as_bytes()],
        |path| {
            let rootfs = tempfile::tempdir()?;
            open_folder(rootfs.path())?;
            compile(source, &rootfs.path().join("pause"))?;
            let mut spec = ImageSpec::new(&names, rootfs.path());
            spec.entrypoint = vec!["/pause".to_owned()];
            spec.write_oci_archive(path)
        },
    )
}

/// The OCI archive of the busybox image, under [`BUSYBOX`] and under the given names.
///
/// # Errors
/// When it is not in the cache and cannot be built: no `busybox-static`, no C compiler.
pub fn busybox(names: &[&str]) -> Result<PathBuf> {
    let program = std::fs::read(BUSYBOX_PROGRAM)
        .with_context(|| format!("read {BUSYBOX_PROGRAM} (apt-get install busybox-static)"))?;
    let names: Vec<&str> = [&[BUSYBOX], names].concat();
    let source = include_str!("images/sh.c").as_bytes();
    cached(
        "busybox",
        &[&program, source, names.join(" ").as_bytes()],
        |path| {
            let rootfs = tempfile::tempdir()?;
            busybox_rootfs(rootfs.path())?;
            let mut spec = ImageSpec::new(&names, rootfs.path());
            spec.cmd = vec!["sh".to_owned()];
            spec.write_oci_archive(path)
        },
    )
}

/// Fills a folder with busybox and a link per applet, users, and the usual empty folders.
///
/// # Errors
/// As [`busybox`].
pub fn busybox_rootfs(root: &Path) -> Result<()> {
    open_folder(root)?;
    for dir in ["bin", "etc", "home", "root", "usr/bin", "var/run", "tmp"] {
        std::fs::create_dir_all(root.join(dir)).with_context(|| format!("make /{dir}"))?;
    }
    std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777))?;
    std::fs::copy(BUSYBOX_PROGRAM, root.join("bin/busybox"))
        .with_context(|| format!("copy {BUSYBOX_PROGRAM} (apt-get install busybox-static)"))?;
    let listed = Command::new(BUSYBOX_PROGRAM).arg("--list").output()?;
    let applets = String::from_utf8(listed.stdout).context("busybox --list")?;
    for applet in applets
        .lines()
        .filter(|name| !matches!(*name, "busybox" | "sh"))
    {
        symlink("busybox", root.join("bin").join(applet)).with_context(|| applet.to_owned())?;
    }
    compile(include_str!("images/sh.c"), &root.join("bin/sh"))?;
    symlink("/bin/env", root.join("usr/bin/env"))?;
    let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
    std::fs::write(root.join("etc/passwd"), users)?;
    std::fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    Ok(())
}

/// A temporary folder is private; a root file system must not be.
fn open_folder(root: &Path) -> Result<()> {
    std::fs::set_permissions(root, PermissionsExt::from_mode(0o755))
        .with_context(|| format!("open {}", root.display()))
}

/// Compiles a C program that needs nothing at run time.
fn compile(source: &str, program: &Path) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("main.c");
    std::fs::write(&file, source)?;
    let built = Command::new("cc")
        .args(["-Os", "-s", "-static", "-o"])
        .args([program, &file])
        .output()
        .context("start cc (apt-get install gcc libc6-dev)")?;
    if !built.status.success() {
        bail!("cc: {}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(())
}

/// The file in the cache that belongs to these inputs; `build` makes it where it is missing.
fn cached(
    name: &str,
    inputs: &[&[u8]],
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    /// Raised when images are built in another way from the same inputs.
    const VERSION: &[u8] = b"1";
    let mut hash = Sha256::new_with_prefix(VERSION);
    for input in inputs {
        hash.update((input.len() as u64).to_le_bytes());
        hash.update(input);
    }
    let key = hex(&hash.finalize()[..8]);
    let dir = cache_dir().join("images");
    let path = dir.join(format!("{name}-{key}.tar"));
    if !path.exists() {
        std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        build(&path)?;
    }
    Ok(path)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

/// Go's name for this machine's architecture, which images use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
