//! Mounts that only the processes of a fixture see.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// A mount namespace, made of a copy of the caller's.
///
/// Nobody needs to live in it: this guard keeps it, and it ends with the guard and the last
/// process inside. Nothing that is mounted in it is seen outside.
#[derive(Debug)]
pub struct PrivateMounts {
    file: File,
}

impl PrivateMounts {
    /// A private `/run` (empty) and a BPF file system at `/sys/fs/bpf`.
    #[must_use]
    #[track_caller]
    pub fn new() -> Self {
        let file = std::thread::spawn(|| -> std::io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let nothing = None::<&Path>;
            mount(
                nothing,
                "/",
                nothing,
                MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                nothing,
            )?;
            File::open("/proc/thread-self/ns/mnt")
        })
        .join()
        .expect("the thread does not panic")
        .unwrap_or_else(|error| panic!("make a mount namespace: {error}"));
        Self { file }.tmpfs("/run").bpffs("/sys/fs/bpf")
    }

    /// An empty file system at `target`, which is made if it is missing.
    ///
    /// A missing folder is made in the file system that is there, so choose targets that
    /// exist anyway, or that lie below an earlier private mount.
    #[must_use]
    #[track_caller]
    pub fn tmpfs(self, target: &str) -> Self {
        self.mount(
            Some(Path::new("tmpfs")),
            target,
            Some("tmpfs"),
            MsFlags::empty(),
        )
    }

    /// A BPF file system at `target`.
    #[must_use]
    #[track_caller]
    pub fn bpffs(self, target: &str) -> Self {
        self.mount(
            Some(Path::new("bpffs")),
            target,
            Some("bpf"),
            MsFlags::empty(),
        )
    }

    /// Shows the folder or file `source` at `target`.
    #[must_use]
    #[track_caller]
    pub fn bind(self, source: &Path, target: &str) -> Self {
        self.mount(
            Some(source),
            target,
            None,
            MsFlags::MS_BIND | MsFlags::MS_REC,
        )
    }

    /// Lets `target` be written to: what changes lands in `upper`, the original stays as it
    /// is. `work` is an empty folder beside `upper` for the kernel's own use.
    #[must_use]
    #[track_caller]
    pub fn overlay(self, target: &str, upper: &Path, work: &Path) -> Self {
        let (upper, work) = (upper.display(), work.display());
        let options = format!("lowerdir={target},upperdir={upper},workdir={work}");
        let done = self.enter(|| {
            let overlay = Some("overlay");
            mount(
                overlay,
                target,
                overlay,
                MsFlags::empty(),
                Some(options.as_str()),
            )
        });
        done.unwrap_or_else(|error| panic!("mount an overlay ({options}): {error}"));
        self
    }

    /// Lets mounts propagate between the namespaces that are copied from this one, as on a
    /// machine that systemd has started; still nothing gets out.
    #[must_use]
    #[track_caller]
    pub fn share(self) -> Self {
        let nothing = None::<&Path>;
        let flags = MsFlags::MS_REC | MsFlags::MS_SHARED;
        let done = self.enter(|| mount(nothing, "/", nothing, flags, nothing));
        done.unwrap_or_else(|error| panic!("share mounts: {error}"));
        self
    }

    /// Runs `work` on a thread of its own inside.
    #[track_caller]
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let joined = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    // A thread shares root and working directory with its siblings, and may
                    // not change its mount namespace while it does.
                    unshare(CloneFlags::CLONE_FS).expect("a thread may leave its siblings' root");
                    setns(&self.file, CloneFlags::CLONE_NEWNS).expect("the namespace is open");
                    work()
                })
                .join()
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A copy of the open namespace file.
    #[must_use]
    pub fn fd(&self) -> OwnedFd {
        self.file
            .try_clone()
            .expect("there are free file descriptors")
            .into()
    }

    #[track_caller]
    fn mount(
        self,
        source: Option<&Path>,
        target: &str,
        fstype: Option<&str>,
        flags: MsFlags,
    ) -> Self {
        let place = PathBuf::from(target);
        let done = self.enter(|| {
            if !place.exists() {
                std::fs::create_dir_all(&place)?;
            }
            mount(source, &place, fstype, flags, None::<&str>).map_err(std::io::Error::from)
        });
        done.unwrap_or_else(|error| panic!("mount {target}: {error}"));
        self
    }
}

impl Default for PrivateMounts {
    fn default() -> Self {
        Self::new()
    }
}
