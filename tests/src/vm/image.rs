//! What is made once: the root file system, and a kernel with an initrd for each version.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use super::Kernel;
use crate::cache_dir;
use crate::images::hex;

/// What the system inside consists of, besides Debian's essential packages.
const PACKAGES: &str = "busybox-static,ca-certificates,conntrack,containerd,curl,dbus,firewalld,ipset,\
                        iproute2,iptables,iputils-ping,jq,kmod,network-manager,nftables,procps,\
                        runc,strace,systemd-sysv,udev,util-linux";
/// What systemd would start by itself. A test starts what it is about.
const NOT_STARTED: &str = "NetworkManager NetworkManager-wait-online apt-daily.timer \
                           apt-daily-upgrade.timer containerd dpkg-db-backup.timer e2scrub_all.timer \
                           e2scrub_reap firewalld fstrim.timer logrotate.timer systemd-timesyncd";
/// Raised when the image is built in another way from the same packages.
const VERSION: &str = "2";
const KERNELS: [Kernel; 2] = [Kernel::Linux6_1, Kernel::Linux6_12];

/// A folder with what [`super::boot`] needs.
#[derive(Debug, Clone)]
pub(super) struct Base(PathBuf);

impl Base {
    pub(super) fn root(&self) -> PathBuf {
        self.0.join("root.img")
    }

    pub(super) fn kernel(&self, kernel: Kernel) -> PathBuf {
        self.0.join(format!("vmlinuz-{}", kernel.name()))
    }

    pub(super) fn initrd(&self, kernel: Kernel) -> PathBuf {
        self.0.join(format!("initrd-{}", kernel.name()))
    }
}

/// The base, from the cache or built now (two minutes, nearly all of it downloading).
pub(super) fn base() -> Result<Base> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _guard = BUILDING.lock();
    let suite = suite()?;
    let key = Sha256::digest(format!("{VERSION} {suite} {PACKAGES}"));
    let cache = cache_dir().join("vm");
    let dir = cache.join(hex(&key[..8]));
    if !dir.exists() {
        std::fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
        eprintln!(
            "building the virtual machine's file system in {}, once",
            dir.display()
        );
        let work = tempfile::Builder::new()
            .prefix("partial-")
            .tempdir_in(&cache)?;
        build(work.path(), &suite)?;
        std::fs::rename(work.keep(), &dir).with_context(|| format!("make {}", dir.display()))?;
    }
    Ok(Base(dir))
}

/// This machine's release: programs that are built here must find the libraries that they
/// were linked with.
pub(crate) fn suite() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(codename
        .context("/etc/os-release has no VERSION_CODENAME")?
        .to_owned())
}

fn build(dir: &Path, suite: &str) -> Result<()> {
    // Which packages there are may have been looked up weeks ago, or never. What is needed and
    // not there is named below.
    run(Command::new("apt-get").args(["update", "-q"])).ok();
    let root = dir.join("root");
    run(Command::new("mmdebstrap")
        .args(["--variant=minbase", &format!("--include={PACKAGES}"), suite])
        .arg(&root))?;
    std::fs::create_dir_all(root.join("seaway"))?;
    add_unit(&root)?;
    for kernel in KERNELS {
        add_kernel(dir, &root, kernel)?;
    }
    for useless in [
        "usr/share/doc",
        "usr/share/locale",
        "usr/share/man",
        "var/cache/apt",
    ] {
        // A package may have none.
        std::fs::remove_dir_all(root.join(useless)).ok();
    }
    run(Command::new("mkfs.ext4")
        .args(["-q", "-d"])
        .args([&root, &dir.join("root.img")])
        .arg(format!("{}K", super::DISK_BYTES >> 10)))?;
    std::fs::remove_dir_all(&root).context("remove the unpacked root")
}

/// What systemd starts, where it is process 1.
fn add_unit(root: &Path) -> Result<()> {
    let units = root.join("etc/systemd/system");
    let text = include_str!("seaway.service");
    std::fs::write(units.join("seaway.service"), text).context("write seaway.service")?;
    let systemctl = |verb: &str, units: &str| {
        let mut command = Command::new("chroot");
        command.arg(root).args(["systemctl", "--quiet", verb]);
        run(command.args(units.split_whitespace()))
    };
    for unit in NOT_STARTED.split_whitespace() {
        // One that a release does not have need not be disabled.
        systemctl("disable", unit).ok();
    }
    systemctl("enable", "seaway.service")
}

/// Unpacks a kernel (its package is not installed: that would run a dozen scripts).
fn add_kernel(dir: &Path, root: &Path, kernel: Kernel) -> Result<()> {
    let depends = stdout(Command::new("apt-cache").args(["depends", kernel.package()]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.with_context(|| format!("apt knows no {}", kernel.package()))?;
    let version = package.strip_prefix("linux-image-").unwrap_or(package);
    if !version.starts_with(kernel.version()) {
        bail!(
            "{} is {version} on this release, not {}",
            kernel.package(),
            kernel.version()
        );
    }
    let unpacked = dir.join(package);
    std::fs::create_dir(&unpacked)?;
    run(Command::new("apt-get")
        .args(["download", "-q", package])
        .current_dir(&unpacked))?;
    run(Command::new("sh")
        .args(["-c", "dpkg-deb -x *.deb ."])
        .current_dir(&unpacked))?;
    let modules = unpacked.join("lib/modules").join(version);
    let installed = root.join("usr/lib/modules");
    std::fs::create_dir_all(&installed)?;
    run(Command::new("cp").arg("-a").args([&modules, &installed]))?;
    run(Command::new("depmod").arg("-b").arg(root).arg(version))?;
    let vmlinuz = unpacked.join("boot").join(format!("vmlinuz-{version}"));
    std::fs::copy(vmlinuz, dir.join(format!("vmlinuz-{}", kernel.name())))?;
    write_initrd(
        root,
        version,
        &dir.join(format!("initrd-{}", kernel.name())),
    )?;
    std::fs::remove_dir_all(&unpacked).context("remove the unpacked kernel")
}

/// busybox, and the modules that give access to the disks.
fn write_initrd(root: &Path, version: &str, file: &Path) -> Result<()> {
    let dir = tempfile::tempdir()?;
    for name in ["bin", "dev", "lib", "n", "proc"] {
        std::fs::create_dir(dir.path().join(name))?;
    }
    std::fs::copy(root.join("usr/bin/busybox"), dir.path().join("bin/busybox"))?;
    for applet in [
        "insmod",
        "mount",
        "sh",
        "sleep",
        "switch_root",
        "umount",
        "cat",
        "[",
    ] {
        std::os::unix::fs::symlink("busybox", dir.path().join("bin").join(applet))?;
    }
    let mut names = Vec::new();
    for module in needed_modules(root, version)? {
        let name = module.file_name().context("a module has a name")?;
        let unpacked = dir.path().join("lib").join(name);
        std::fs::copy(&module, &unpacked)?;
        let name = name.to_string_lossy();
        if name.ends_with(".xz") {
            run(Command::new("unxz").arg(&unpacked))?;
        }
        names.push(name.trim_end_matches(".xz").to_owned());
    }
    std::fs::write(dir.path().join("modules"), names.join("\n") + "\n")?;
    let init = dir.path().join("init");
    std::fs::write(&init, include_str!("initrd.sh"))?;
    run(Command::new("chmod").arg("755").arg(&init))?;
    let pack = "find . | cpio --create --format=newc --quiet >\"$1\"";
    run(Command::new("sh")
        .args(["-c", pack, "sh"])
        .arg(file)
        .current_dir(dir.path()))
}

/// In the order in which they must be loaded.
fn needed_modules(root: &Path, version: &str) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for module in ["virtio_pci", "virtio_blk"] {
        let mut command = Command::new("modprobe");
        command.args(["--show-depends", "--set-version", version, "--dirname"]);
        let listed = stdout(command.arg(root).arg(module))?;
        // What is built into the kernel is listed as "builtin".
        for path in listed
            .lines()
            .filter_map(|line| line.strip_prefix("insmod "))
        {
            let path = PathBuf::from(path.trim());
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Runs a program; what it says is in the error.
pub(super) fn run(command: &mut Command) -> Result<()> {
    stdout(command).map(drop)
}

fn stdout(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        bail!(
            "{name}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
