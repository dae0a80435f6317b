//! A node to run the daemon on, and the daemon.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seaway_testbed::{Cgroup2, Join, Netns, PrivateMounts, bin, wait_until, write_program};
use serde_json::json;

/// Only what never comes takes as long.
const PATIENCE: Duration = Duration::from_mins(2);
pub(crate) const API: &str = "127.0.0.1:8001";
pub(crate) const HEALTHZ: &str = "127.0.0.1:10256";
pub(crate) const CONF: &str = "net.d/05-seaway.conflist";

/// A node: a namespace with an uplink, folders, and places to run the daemon in.
pub(crate) struct Node {
    pub(crate) netns: Netns,
    mounts: PrivateMounts,
    cgroup: Cgroup2,
    dir: tempfile::TempDir,
}

/// A daemon, killed with its guard.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Node {
    pub(crate) fn new() -> Self {
        let netns = Netns::new("node");
        netns.ip("link add eth0 mtu 1430 type veth peer name far");
        netns.ip("addr add 172.30.0.11/24 dev eth0");
        netns.ip("link set eth0 up");
        netns.ip("link set far up");
        // A "pod" on the node itself, and a way for Service addresses to be sent at all.
        netns.ip("addr add 10.244.0.5/32 dev lo");
        netns.ip("route add default dev eth0 src 172.30.0.11");
        Self::of(netns)
    }

    /// A node that is a namespace already.
    pub(crate) fn of(netns: Netns) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{API}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self {
            netns,
            mounts: PrivateMounts::new(),
            cgroup: Cgroup2::new("node"),
            dir,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program, with the flags that every verb has.
    pub(crate) fn command(&self, verb: &str) -> Command {
        self.command_with(verb, Path::new("/sys/fs/bpf/seaway/v1"))
    }

    pub(crate) fn command_with(&self, verb: &str, bpffs_dir: &Path) -> Command {
        let place = Join::new().netns(&self.netns).mounts(&self.mounts);
        let mut command = place.command(bin("seaway-proxy"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.path("bin").display());
        command.arg(verb).env_clear().env("PATH", path);
        // A plain HTTP server is reached without a single CA certificate.
        command.env("SSL_CERT_FILE", "/dev/null");
        command.arg("--bpffs-dir").arg(bpffs_dir);
        command.arg("--run-dir").arg(self.path("run"));
        command.arg("--cni-conf-dir").arg(self.path("net.d"));
        command.arg("--cgroup-root").arg(self.cgroup.path());
        command
    }

    pub(crate) fn start(&self, service_proxy: &str) -> Daemon {
        let network = ["--cluster-cidr", "10.244.0.0/16", "--pod-routes", "direct"];
        self.start_with(service_proxy, &network)
    }

    pub(crate) fn start_with(&self, service_proxy: &str, flags: &[&str]) -> Daemon {
        self.start_as("a", service_proxy, flags)
    }

    /// As the node of this name.
    pub(crate) fn start_as(&self, name: &str, service_proxy: &str, flags: &[&str]) -> Daemon {
        let mut command = self.command("run");
        command.arg("--kubeconfig").arg(self.path("kubeconfig"));
        command.args(["--node-name", name]).args(flags);
        command.args([
            "--service-proxy",
            service_proxy,
            "--healthz-bind-address",
            HEALTHZ,
        ]);
        self.launch(&mut command)
    }

    /// Starts what was put together from [`command`](Self::command).
    pub(crate) fn launch(&self, command: &mut Command) -> Daemon {
        let log = self.path("log");
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = command.stdin(Stdio::null()).stderr(output).spawn().unwrap();
        Daemon { child, log }
    }

    /// Makes `iptables-nft-restore` say that it was started, and wait until it may go on.
    pub(crate) fn hold_restore(&self) {
        let real = self
            .netns
            .must_run(&["sh", "-c", "command -v iptables-nft-restore"]);
        let script = format!(
            "#!/bin/sh\ntouch {started}\nwhile [ ! -e {go} ]; do sleep 0.02; done\nexec {real} \"$@\"\n",
            started = self.path("started").display(),
            go = self.path("go").display(),
            real = real.trim(),
        );
        fs::create_dir(self.path("bin")).unwrap();
        write_program(&self.path("bin/iptables-nft-restore"), &script);
    }

    /// What the program has said.
    pub(crate) fn cleanup(&self) -> String {
        let output = self.command("cleanup").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        text
    }

    /// Status code and body of a GET inside the namespace.
    pub(crate) fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        self.get_from(HEALTHZ, path)
    }

    pub(crate) fn get_from(&self, addr: &str, path: &str) -> std::io::Result<(u16, String)> {
        let addr: SocketAddr = addr.parse().unwrap();
        let mut stream = self.netns.enter(|| TcpStream::connect(addr))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((code, answer.split_once("\r\n\r\n").unwrap().1.to_owned()))
    }

    /// A program of the node's, in its cgroup as well, where eBPF meets it.
    pub(crate) fn command_inside(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in(&self.netns, program)
    }

    /// The same of a pod's.
    pub(crate) fn command_in(&self, netns: &Netns, program: impl AsRef<OsStr>) -> Command {
        let place = Join::new().netns(netns).cgroup(&self.cgroup);
        place.command(program)
    }

    /// What answers at a Service address, asked from inside the node's cgroup.
    pub(crate) fn ask(&self, address: &str) -> String {
        let mut asks = self.command_inside(bin("seaway-peer"));
        let output = asks.args(["ask", "tcp", address]).output().unwrap();
        let text = if output.status.success() {
            output.stdout
        } else {
            output.stderr
        };
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(crate) fn routes(&self) -> String {
        self.netns.ip("route show proto 83")
    }

    /// Rules and chains that somebody added; the empty base chains that iptables makes
    /// as soon as it is used belong to nobody.
    pub(crate) fn rules(&self) -> Vec<String> {
        let dump = self.netns.must_run(&["iptables-save"]);
        let added = dump
            .lines()
            .filter(|l| l.starts_with("-A") || l.ends_with("- [0:0]"));
        added.map(str::to_owned).collect()
    }

    pub(crate) fn has_rule(&self, part: &str) -> bool {
        self.rules().iter().any(|rule| rule.contains(part))
    }

    pub(crate) fn route_localnet(&self) -> String {
        let sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet";
        self.netns.must_run(&["cat", sysctl]).trim().to_owned()
    }

    pub(crate) fn pins(&self) -> Vec<PathBuf> {
        self.mounts.enter(|| files(Path::new("/sys/fs/bpf")))
    }

    /// Puts a file as a whole where only programs of this node see it, as kubelet does it for a
    /// pod: `path` is below `/run`, which is the node's own.
    pub(crate) fn mount_file(&self, path: &str, text: &str) {
        assert!(path.starts_with("/run/"), "{path}");
        let path = Path::new(path);
        let put = || -> std::io::Result<()> {
            fs::create_dir_all(path.parent().unwrap())?;
            let new = path.with_extension("new");
            fs::write(&new, text)?;
            fs::rename(&new, path)
        };
        self.mounts.enter(put).unwrap();
    }

    /// Takes one of our BPF objects away, by its path below our directory.
    pub(crate) fn remove_pin(&self, path: &str) {
        let path = Path::new("/sys/fs/bpf/seaway/v1").join(path);
        self.mounts.enter(|| fs::remove_file(&path)).unwrap();
    }

    /// Tables other than those that iptables makes.
    pub(crate) fn nft(&self) -> Vec<String> {
        let tables = self.netns.must_run(&["nft", "list", "tables"]);
        let of_iptables = ["ip filter", "ip nat", "ip6 filter", "ip6 nat"];
        let others = tables
            .lines()
            .filter(|t| !of_iptables.iter().any(|of| *t == format!("table {of}")));
        others.map(str::to_owned).collect()
    }
}

impl Daemon {
    pub(crate) fn log_path(&self) -> PathBuf {
        self.log.clone()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// How many lines hold all of `words`.
    pub(crate) fn said(&self, words: &[&str]) -> usize {
        self.log()
            .lines()
            .filter(|l| words.iter().all(|w| l.contains(w)))
            .count()
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, mut look: impl FnMut() -> bool) {
        let look = || Ok(if look() { Ok(()) } else { Err(String::new()) });
        wait_until(PATIENCE, what, look).unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
    }

    #[track_caller]
    pub(crate) fn wait_said(&self, words: &[&str]) {
        self.wait(&format!("{words:?} in the log"), || self.said(words) > 0);
    }

    pub(crate) fn terminate(self) -> ExitStatus {
        self.end(Signal::SIGTERM)
    }

    pub(crate) fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Waits for an end that has been asked for already.
    pub(crate) fn ended(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already, or shall now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        found.push(entry.path());
        found.extend(files(&entry.path()));
    }
    found
}
