//! The registry that nodes pull from: Debian's, filled once with images that were built here.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

use super::place::{Daemon, Place};
use super::{AGNHOST, CONTROL_IP, must, say, tool, until};
use crate::images::{self, ImageSpec};

/// The sandbox image, under the name that the kubelet of this version asks for.
pub(super) const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
const PORT: u16 = 5000;
/// Raised when the images are built in another way.
const VERSION: u32 = 1;

/// Starts it, read-only, on what was pushed into the cache's copy once.
pub(super) fn start(dir: &Path, place: &Place) -> Result<Daemon> {
    let storage = filled(dir, place)?;
    serve(dir, "registry", &storage, true, place)
}

/// Where containerd learns that `registry.k8s.io` is here.
pub(super) fn write_hosts(dir: &Path) -> Result<PathBuf> {
    let certs = dir.join("certs.d");
    let host = certs.join("registry.k8s.io");
    fs::create_dir_all(&host).with_context(|| format!("make {}", host.display()))?;
    let text = format!(
        "server = \"http://{CONTROL_IP}:{PORT}\"\n\n\
         [host.\"http://{CONTROL_IP}:{PORT}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    fs::write(host.join("hosts.toml"), text).context("write hosts.toml")?;
    Ok(certs)
}

/// The folder in the cache that has all images; pushed into when it is missing.
fn filled(dir: &Path, place: &Place) -> Result<PathBuf> {
    let cache = crate::cache_dir();
    let agnhost = tool("agnhost");
    let built = fs::metadata(&agnhost).context("look at agnhost")?;
    let storage = cache.join(format!(
        "registry-{VERSION}-{}-{}",
        built.size(),
        built.mtime()
    ));
    let lock = File::create(cache.join("registry.lock")).context("open the registry's lock")?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .context("lock the registry's folder")?;
    if storage.exists() {
        return Ok(storage);
    }
    say("fills the registry, once");
    let fresh = storage.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).with_context(|| format!("remove {}", fresh.display()))?;
    }
    let pause = images::pause(&[])?;
    let busybox = images::busybox(&[])?;
    let agnhost = agnhost_archive(dir, &agnhost)?;
    let server = serve(dir, "registry-fill", &fresh, false, place)?;
    push(place, &pause, "1", PAUSE)?;
    push(place, &busybox, "1", BUSYBOX)?;
    push(place, &agnhost, "2.63.0", AGNHOST)?;
    drop(server);
    fs::rename(&fresh, &storage).with_context(|| format!("rename {}", fresh.display()))?;
    Ok(storage)
}

/// agnhost beside a shell. The tag in the archive is that of [`AGNHOST`].
fn agnhost_archive(dir: &Path, program: &Path) -> Result<PathBuf> {
    let rootfs = dir.join("agnhost-rootfs");
    fs::create_dir_all(&rootfs).context("make the root file system of agnhost")?;
    images::busybox_rootfs(&rootfs)?;
    fs::copy(program, rootfs.join("agnhost")).context("copy agnhost")?;
    let mut spec = ImageSpec::new(&[AGNHOST], &rootfs);
    spec.entrypoint = vec!["/agnhost".into()];
    spec.cmd = vec!["pause".into()];
    let archive = dir.join("agnhost.tar");
    spec.write_oci_archive(&archive)?;
    Ok(archive)
}

fn push(place: &Place, archive: &Path, tag: &str, name: &str) -> Result<()> {
    let path = name.strip_prefix("registry.k8s.io/").unwrap_or(name);
    let mut skopeo = place.command("skopeo");
    skopeo
        .args([
            "copy",
            "--quiet",
            "--insecure-policy",
            "--dest-tls-verify=false",
        ])
        .arg(format!("oci-archive:{}:{tag}", archive.display()))
        .arg(format!("docker://{CONTROL_IP}:{PORT}/{path}"));
    must(&mut skopeo, &format!("skopeo copy {name}"))
}

fn serve(dir: &Path, name: &str, storage: &Path, read_only: bool, place: &Place) -> Result<Daemon> {
    let config = dir.join(format!("{name}.yml"));
    let text = format!(
        "version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {}}}
  maintenance: {{readonly: {{enabled: {read_only}}}, uploadpurging: {{enabled: false}}}}
http: {{addr: \"{CONTROL_IP}:{PORT}\"}}
",
        storage.display()
    );
    fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let daemon = Daemon::new(dir, name, PathBuf::from("docker-registry"))
        .args(["serve".to_owned(), config.display().to_string()])
        .env("OTEL_TRACES_EXPORTER", "none")
        .spawn(place)?;
    until("the registry answers", Duration::from_secs(20), || {
        daemon.check_alive()?;
        let mut curl = place.command("curl");
        curl.args([
            "-s",
            "-f",
            "-o",
            "/dev/null",
            &format!("http://{CONTROL_IP}:{PORT}/v2/"),
        ]);
        let status = curl.status().context("start curl (apt-get install curl)")?;
        Ok(status.success().then_some(()))
    })?;
    Ok(daemon)
}
