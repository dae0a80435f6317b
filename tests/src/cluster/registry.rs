//! The registry that nodes pull from: Debian's, filled once with images that were built here.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};

use super::place::{Daemon, Place};
use super::{AGNHOST, Families, Images, host_port, must, say, tool, until};
use crate::images::e2e::Archive;
use crate::images::{self, ImageSpec};

/// The sandbox image, under the name that the kubelet of this version asks for.
pub(super) const PAUSE: &str = "registry.k8s.io/pause:3.10.2";
const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";
const PORT: u16 = 5000;
/// Of the registry for what a test has built, beside the one that all tests share.
const OWN_PORT: u16 = 5001;
/// Its name on the nodes.
const OWN: &str = "seaway.test";
/// Where it listens while it is filled: skopeo takes no IPv6 address for a registry.
const LOOPBACK: &str = "127.0.0.1";
/// containerd's folder of registries, below that of the cluster.
const CERTS: &str = "certs.d";
/// Raised when the images are built in another way.
const FEW_VERSION: &str = "1";
const END_TO_END_VERSION: &str = "e2e-3";

/// Starts it, read-only, on what was pushed into the cache's copy once.
pub(super) fn start(
    dir: &Path,
    place: &Place,
    families: Families,
    images: &Images,
) -> Result<Daemon> {
    let storage = filled(dir, place, images)?;
    serve(dir, Listen::shared(families.control_ip()), &storage, place)
}

/// Starts another one, and fills it with one image; gives the image's name for the nodes.
pub(super) fn publish(
    dir: &Path,
    place: &Place,
    families: Families,
    archive: &Path,
    name: &str,
) -> Result<(Daemon, String)> {
    let listen = Listen {
        name: "registry-own",
        address: host_port(families.control_ip(), OWN_PORT),
        read_only: false,
    };
    let address = listen.address.clone();
    let storage = dir.join("registry-own");
    let server = serve(dir, listen, &storage, place)?;
    let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    push(place, archive, tag, &format!("{address}/{name}"))?;
    write_host(&dir.join(CERTS), OWN, &address)?;
    Ok((server, format!("{OWN}/{name}")))
}

/// Where containerd learns that `registry.k8s.io` is here.
pub(super) fn write_hosts(dir: &Path, families: Families) -> Result<PathBuf> {
    let certs = dir.join(CERTS);
    let address = host_port(families.control_ip(), PORT);
    write_host(&certs, "registry.k8s.io", &address)?;
    Ok(certs)
}

/// containerd reads it at each pull.
fn write_host(certs: &Path, name: &str, address: &str) -> Result<()> {
    let host = certs.join(name);
    fs::create_dir_all(&host).with_context(|| format!("make {}", host.display()))?;
    let url = format!("http://{address}");
    let text = format!(
        "server = \"{url}\"\n\n\
         [host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    );
    fs::write(host.join("hosts.toml"), text).context("write hosts.toml")
}

/// The folder in the cache that has all images; pushed into when it is missing.
fn filled(dir: &Path, place: &Place, images: &Images) -> Result<PathBuf> {
    let cache = crate::cache_dir();
    let built = fs::metadata(tool("agnhost")).context("look at agnhost")?;
    let version = match images {
        Images::Few => FEW_VERSION,
        Images::EndToEnd { .. } => END_TO_END_VERSION,
    };
    let storage = cache.join(format!(
        "registry-{version}-{}-{}",
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
    let work = tempfile::tempdir_in(dir).context("make a folder for images")?;
    let archives = archives(work.path(), images)?;
    let server = serve(dir, Listen::filled(), &fresh, place)?;
    for Archive { file, tag, names } in &archives {
        for name in names {
            let path = name.strip_prefix("registry.k8s.io/").unwrap_or(name);
            push(place, file, tag, &format!("{LOOPBACK}:{PORT}/{path}"))?;
        }
    }
    drop(server);
    fs::rename(&fresh, &storage).with_context(|| format!("rename {}", fresh.display()))?;
    Ok(storage)
}

fn archives(work: &Path, images: &Images) -> Result<Vec<Archive>> {
    let archive = |file, tag: &str, name: &str| Archive {
        file,
        tag: tag.to_owned(),
        names: vec![name.to_owned()],
    };
    let mut archives = vec![archive(images::pause(&[])?, "1", PAUSE)];
    match images {
        Images::Few => {
            archives.push(archive(images::busybox(&[])?, "1", BUSYBOX));
            let agnhost = agnhost_archive(work, &tool("agnhost"))?;
            archives.push(archive(agnhost, "2.63.0", AGNHOST));
        }
        Images::EndToEnd { kubernetes } => archives.extend(images::e2e::build(work, kubernetes)?),
    }
    Ok(archives)
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

/// `to` is `ADDRESS:PORT/NAME:TAG`.
fn push(place: &Place, archive: &Path, tag: &str, to: &str) -> Result<()> {
    let mut skopeo = place.command("skopeo");
    skopeo
        .args([
            "copy",
            "--quiet",
            "--insecure-policy",
            "--dest-tls-verify=false",
        ])
        .arg(format!("oci-archive:{}:{tag}", archive.display()))
        .arg(format!("docker://{to}"));
    must(&mut skopeo, &format!("skopeo copy to {to}"))
}

/// What a registry is to be called, where it listens, and whether it takes images.
struct Listen {
    name: &'static str,
    address: String,
    read_only: bool,
}

impl Listen {
    fn shared(ip: &str) -> Self {
        Self {
            name: "registry",
            address: host_port(ip, PORT),
            read_only: true,
        }
    }

    fn filled() -> Self {
        Self {
            name: "registry-fill",
            address: host_port(LOOPBACK, PORT),
            read_only: false,
        }
    }
}

fn serve(dir: &Path, listen: Listen, storage: &Path, place: &Place) -> Result<Daemon> {
    let Listen {
        name,
        address,
        read_only,
    } = listen;
    let config = dir.join(format!("{name}.yml"));
    let text = format!(
        "version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {}}}
  maintenance: {{readonly: {{enabled: {read_only}}}, uploadpurging: {{enabled: false}}}}
http: {{addr: \"{address}\"}}
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
            &format!("http://{address}/v2/"),
        ]);
        let status = curl.status().context("start curl (apt-get install curl)")?;
        Ok(status.success().then_some(()))
    })?;
    Ok(daemon)
}
