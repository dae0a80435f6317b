//! The images that upstream's end-to-end tests pull, made here from what Debian and the
//! Kubernetes module have: for each test they can do what the published ones can.
//!
//! Left out are those that no conformance test and no test of the network wants.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{ImageSpec, busybox_rootfs, open_folder};
use crate::cache_dir;

/// Before the names of all images of the tests.
const TESTS: &str = "registry.k8s.io/e2e-test-images";
/// What tests execute in agnhost besides agnhost.
const AGNHOST_PACKAGES: &str =
    "conntrack,curl,dnsutils,iproute2,iptables,netcat-openbsd,util-linux,wget";
const NGINX_PACKAGES: &str = "nginx-light";
/// A test looks for it, to tell this image from those on Debian.
const ALPINE: &str = "NAME=\"Alpine Linux\"\nID=alpine\n";
/// A test wants a process of this user to be in this group, as the image says.
const USER: &str = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n";
const GROUP: &str = "group-defined-in-image:x:50000:user-defined-in-image\n";

/// One image as an OCI archive, and what registries call it.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) file: PathBuf,
    /// The tag inside of the archive
    pub(crate) tag: String,
    /// With registry and tag
    pub(crate) names: Vec<String>,
}

/// Makes all of them in `work`. `kubernetes` is the folder of the module `k8s.io/kubernetes`,
/// whose test images have files of their own.
///
/// # Errors
/// When a program (`cargo xtask conformance` builds them) or a package is not to be had.
pub(crate) fn build(work: &Path, kubernetes: &Path) -> Result<Vec<Archive>> {
    let shop = Shop { work, kubernetes };
    Ok(vec![
        shop.agnhost()?,
        shop.website("kitten", "1.8")?,
        shop.website("nautilus", "1.8")?,
        shop.nginx()?,
        shop.on_busybox(&["busybox:1.37.0-1"], |_, spec| {
            spec.cmd = vec!["sh".into()];
            Ok(())
        })?,
        shop.on_busybox(&["nonroot:1.5"], |_, spec| {
            spec.user = "1234".into();
            spec.cmd = vec!["sh".into()];
            Ok(())
        })?,
        shop.on_busybox(&["nonewprivs:1.4"], |root, spec| {
            // It tells what the mode has made of its user.
            install("nonewprivs", &root.join("usr/local/bin/nnp"), 0o6755)?;
            spec.cmd = vec!["nnp".into()];
            Ok(())
        })?,
        shop.on_busybox(&["regression-issue-74839:1.4"], |root, spec| {
            let name = "regression-issue-74839";
            install(name, &root.join(name), 0o755)?;
            spec.entrypoint = vec![format!("/{name}")];
            Ok(())
        })?,
        shop.on_busybox(&["sample-apiserver:1.29.2"], |root, spec| {
            install("sample-apiserver", &root.join("sample-apiserver"), 0o755)?;
            spec.entrypoint = vec!["/sample-apiserver".into()];
            Ok(())
        })?,
        shop.on_busybox(&["registry.k8s.io/etcd:3.6.8-0"], |root, _| {
            install("etcd", &root.join("usr/local/bin/etcd"), 0o755)
        })?,
    ])
}

struct Shop<'a> {
    work: &'a Path,
    kubernetes: &'a Path,
}

impl Shop<'_> {
    fn agnhost(&self) -> Result<Archive> {
        let names = [
            "agnhost:2.63.0",
            "agnhost:2.55",
            "glibc-dns-testing:2.0.0",
            // A test runs its `conntrack`.
            "registry.k8s.io/build-image/distroless-iptables:v0.9.6",
        ];
        self.image(&names, |root, spec| {
            debian(root, AGNHOST_PACKAGES)?;
            // Upstream's is busybox's, which does not try again.
            append(&root.join("etc/wgetrc"), "tries = 1\n")?;
            self.add_agnhost(root, spec)?;
            append(&root.join("etc/passwd"), USER)?;
            append(&root.join("etc/group"), GROUP)
        })
    }

    /// agnhost with a page of its own.
    fn website(&self, name: &str, version: &str) -> Result<Archive> {
        self.on_busybox(&[&format!("{name}:{version}")], |root, spec| {
            self.add_agnhost(root, spec)?;
            for file in [&format!("{name}.jpg"), "data.json"] {
                self.copy(&format!("{name}/html/{file}"), &root.join(file))?;
            }
            fs::write(root.join("etc/os-release"), ALPINE).context("write os-release")?;
            spec.cmd = vec!["test-webserver".into()];
            Ok(())
        })
    }

    fn nginx(&self) -> Result<Archive> {
        self.image(&["nginx:1.15-4", "nginx:1.27-0"], |root, spec| {
            debian(root, NGINX_PACKAGES)?;
            spec.cmd = ["nginx", "-g", "daemon off;"].map(String::from).into();
            Ok(())
        })
    }

    /// As upstream's Dockerfile of it does.
    fn add_agnhost(&self, root: &Path, spec: &mut ImageSpec) -> Result<()> {
        install("agnhost", &root.join("agnhost"), 0o755)?;
        symlink("agnhost", root.join("agnhost-2")).context("link agnhost-2")?;
        fs::create_dir_all(root.join("uploads")).context("make /uploads")?;
        for file in ["localhost.crt", "localhost.key"] {
            self.copy(&format!("agnhost/porter/{file}"), &root.join(file))?;
        }
        spec.entrypoint = vec!["/agnhost".into()];
        spec.cmd = vec!["pause".into()];
        Ok(())
    }

    fn on_busybox(
        &self,
        names: &[&str],
        fill: impl FnOnce(&Path, &mut ImageSpec) -> Result<()>,
    ) -> Result<Archive> {
        self.image(names, |root, spec| {
            busybox_rootfs(root)?;
            fs::create_dir_all(root.join("usr/local/bin")).context("make /usr/local/bin")?;
            fill(root, spec)
        })
    }

    /// The names are below [`TESTS`], unless they say otherwise.
    fn image(
        &self,
        names: &[&str],
        fill: impl FnOnce(&Path, &mut ImageSpec) -> Result<()>,
    ) -> Result<Archive> {
        let names: Vec<String> = names.iter().map(|name| full_name(name)).collect();
        let first = names.first().context("an image needs a name")?;
        let (path, tag) = first.rsplit_once(':').context("a name needs a tag")?;
        let short = path.rsplit('/').next().unwrap_or(path);
        crate::cluster::say(&format!("makes image {first}"));
        let root = self.work.join(format!("{short}-root"));
        fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
        open_folder(&root)?;
        let mut spec = ImageSpec::new(&[first], &root);
        fill(&root, &mut spec).with_context(|| format!("fill image {first}"))?;
        let (file, tag) = (self.work.join(format!("{short}.tar")), tag.to_owned());
        spec.write_oci_archive(&file)?;
        fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
        Ok(Archive { file, tag, names })
    }

    /// A file of the module's test images. Its mode would not do: a module's files are read-only.
    fn copy(&self, from: &str, to: &Path) -> Result<()> {
        let from = self.kubernetes.join("test/images").join(from);
        fs::copy(&from, to).with_context(|| format!("copy {}", from.display()))?;
        fs::set_permissions(to, PermissionsExt::from_mode(0o644)).context("set a mode")
    }
}

fn full_name(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("{TESTS}/{name}")
    }
}

/// Copies a program of the cache.
fn install(program: &str, to: &Path, mode: u32) -> Result<()> {
    let from = cache_dir().join("bin").join(program);
    fs::copy(&from, to)
        .with_context(|| format!("copy {} (cargo xtask conformance)", from.display()))?;
    fs::set_permissions(to, PermissionsExt::from_mode(mode)).context("set a mode")
}

/// A small Debian with these packages, of this machine's release.
fn debian(root: &Path, packages: &str) -> Result<()> {
    let suite = crate::vm::debian_suite()?;
    let made = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase"])
        .args([&format!("--include={packages}"), &suite])
        .arg(root)
        .output()
        .context("start mmdebstrap (apt-get install mmdebstrap)")?;
    let said = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "mmdebstrap: {}", said.trim());
    for useless in [
        "usr/share/doc",
        "usr/share/locale",
        "usr/share/man",
        "var/cache/apt",
        "var/lib/apt",
    ] {
        // A package may have none.
        fs::remove_dir_all(root.join(useless)).ok();
    }
    Ok(())
}

fn append(file: &Path, line: &str) -> Result<()> {
    fs::File::options()
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("add a line to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_registry_are_those_of_the_tests() {
        assert_eq!(
            full_name("busybox:1"),
            "registry.k8s.io/e2e-test-images/busybox:1"
        );
        assert_eq!(
            full_name("registry.k8s.io/etcd:3"),
            "registry.k8s.io/etcd:3"
        );
    }
}
