//! Network namespaces of a test's own.

mod counted;
mod iproute;
mod settle;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

pub use iproute::connect;

use crate::peer::{self, Answer, Protocol, Server};
use crate::{Join, sweep};

/// A network namespace with nothing in it but `lo`, which is up.
///
/// It can be seen by `ip netns` and entered by `nsenter --net=/run/netns/NAME` (unlike `ip
/// netns exec`, that leaves /sys and its cgroups in place). The guard is bound to the thread
/// that made it. When it is dropped, the processes that still live in the namespace are
/// killed and it is removed.
#[derive(Debug)]
pub struct Netns {
    name: String,
    path: PathBuf,
    file: File,
    thread_bound: PhantomData<*const ()>,
}

/// `test-<pid>-<n>-<hint>`: unique while this process lives, recognised after it has died.
#[must_use]
pub fn unique_name(hint: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}{}-{n}-{hint}", sweep::PREFIX, std::process::id())
}

/// A folder with such a name that goes with what is returned, or is swept after a killed process.
///
/// # Errors
/// When it cannot be made.
pub fn temporary(hint: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix(&unique_name(hint))
        .tempdir()
}

impl Netns {
    /// Makes a namespace called `test-<pid>-<n>-<hint>`.
    #[must_use]
    #[track_caller]
    pub fn new(hint: &str) -> Self {
        Self::named(&unique_name(hint))
    }

    /// Makes a namespace called `name`, which must be free.
    #[must_use]
    #[track_caller]
    pub fn named(name: &str) -> Self {
        sweep::once();
        let name = name.to_owned();
        let path = Path::new(sweep::NETNS_DIR).join(&name);
        let file = make(&path).unwrap_or_else(|error| panic!("make namespace {name}: {error}"));
        let netns = Self {
            name,
            path,
            file,
            thread_bound: PhantomData,
        };
        netns.ip("link set lo up");
        netns
    }

    /// Its name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, as in `CNI_NETNS`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A copy of the open namespace file.
    #[must_use]
    pub fn fd(&self) -> OwnedFd {
        self.file
            .try_clone()
            .expect("there are free file descriptors")
            .into()
    }

    /// Writes a sysctl below `/proc/sys/net`, such as `ipv4/ip_forward`.
    #[track_caller]
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = Path::new("/proc/sys/net").join(key);
        let done = self.enter(|| std::fs::write(&path, value));
        done.unwrap_or_else(|error| panic!("{}: write {}: {error}", self.name, path.display()));
    }

    /// Runs a command inside and waits for it.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Output {
        let (program, args) = words.split_first().expect("a command has a name");
        let output = self.command(program).args(args).output();
        output.unwrap_or_else(|error| {
            panic!(
                "{}: start {}: {error}",
                self.name,
                program.as_ref().display()
            )
        })
    }

    /// Runs a command inside, and returns its standard output.
    ///
    /// # Panics
    /// When it fails, with its error text.
    #[track_caller]
    pub fn must_run<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        let output = self.run(words);
        if !output.status.success() {
            let line: Vec<_> = words
                .iter()
                .map(|word| word.as_ref().to_string_lossy())
                .collect();
            panic!(
                "{}: `{}` failed ({}): {}",
                self.name,
                line.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts a command inside. It is killed, at the latest, with the namespace.
    #[track_caller]
    pub fn spawn<S: AsRef<OsStr>>(&self, words: &[S]) -> Child {
        let (program, args) = words.split_first().expect("a command has a name");
        let child = self.command(program).args(args).spawn();
        child.unwrap_or_else(|error| {
            panic!(
                "{}: start {}: {error}",
                self.name,
                program.as_ref().display()
            )
        })
    }

    /// A command that will run inside; to join a cgroup or mounts as well, see [`Join`].
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Join::new().netns(self).command(program)
    }

    /// Runs `work` inside, on a thread of its own that ends with it. Its panic is passed on.
    #[track_caller]
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = &self.file;
        let joined = std::thread::scope(|scope| {
            let inside = move || {
                setns(file, CloneFlags::CLONE_NEWNET).expect("the namespace is open");
                work()
            };
            scope.spawn(inside).join()
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Starts a server inside that answers with `name`; it ends when the guard is dropped.
    #[must_use]
    #[track_caller]
    pub fn serve(&self, protocol: Protocol, address: &str, name: &str) -> Server {
        let server = self.enter(|| Server::start(protocol, parse(address), name));
        server.unwrap_or_else(|error| panic!("{}: serve {address}: {error}", self.name))
    }

    /// Asks a server for its name, from inside, with `protocol`'s default time limit.
    ///
    /// # Errors
    /// What the socket said: `ConnectionRefused`, `TimedOut`, `HostUnreachable`, ...
    #[track_caller]
    pub fn ask(&self, protocol: Protocol, address: &str) -> io::Result<Answer> {
        self.enter(|| peer::ask(protocol, parse(address), peer::PATIENCE))
    }

    /// The name of who answers at a TCP address.
    ///
    /// # Errors
    /// As [`Self::ask`].
    #[track_caller]
    pub fn ask_tcp(&self, address: &str) -> io::Result<String> {
        self.ask(Protocol::Tcp, address).map(|answer| answer.name)
    }

    /// The name of who answers at a UDP address, asked by a connected socket.
    ///
    /// # Errors
    /// As [`Self::ask`].
    #[track_caller]
    pub fn ask_udp(&self, address: &str) -> io::Result<String> {
        self.ask(Protocol::Udp, address).map(|answer| answer.name)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = sweep::remove_netns(&self.path) {
            sweep::complain(&format!("remove namespace {}: {error}", self.name));
        }
    }
}

#[track_caller]
fn parse(address: &str) -> SocketAddr {
    address
        .parse()
        .unwrap_or_else(|error| panic!("address {address:?}: {error}"))
}

/// A namespace lives as long as its file is mounted, so that nobody needs to stay inside.
fn make(path: &Path) -> io::Result<File> {
    std::fs::create_dir_all(sweep::NETNS_DIR)?;
    File::options().write(true).create_new(true).open(path)?;
    let made = std::thread::scope(|scope| {
        let outside_in = || -> io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let own = Path::new("/proc/thread-self/ns/net");
            mount(
                Some(own),
                path,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )?;
            File::open(path)
        };
        scope
            .spawn(outside_in)
            .join()
            .expect("the thread does not panic")
    });
    if made.is_err() {
        // The error that counts is the first one.
        umount2(path, MntFlags::MNT_DETACH).ok();
        std::fs::remove_file(path).ok();
    }
    made
}
