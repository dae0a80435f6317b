//! Where a call can be killed so that it makes a difference.
//!
//! What a killed process leaves changes only with the system calls that change something
//! outside of it, so a kill at each of those, before it is carried out, meets every state that
//! there is. Which they are is found by tracing a whole run. Every system call of that is
//! known to change something or not; one that is new fails the test until it is sorted in.

use std::collections::BTreeMap;
use std::path::Path;

/// The k-th call of a system call.
pub(super) type Point = (String, usize);

/// Of files, sockets, locks, programs, and the end. On other machines some have other names.
const CHANGING: &[&str] = &[
    "write",
    "pwrite64",
    "writev",
    "ftruncate",
    "utimensat",
    "fsync",
    "fdatasync",
    "mkdir",
    "mkdirat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "sendto",
    "sendmsg",
    "flock",
    "clone",
    "clone3",
    "fork",
    "vfork",
    "exit_group",
];

/// The process's own memory, threads, signals and file descriptors, and its namespace.
const OWN: &[&str] = &[
    "execve",
    "arch_prctl",
    "brk",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "madvise",
    "set_tid_address",
    "set_robust_list",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "setns",
    "close",
    "dup",
    "dup2",
    "dup3",
    "pipe2",
    "lseek",
    "socket",
    "bind",
    "connect",
    "setsockopt",
    "exit",
];

/// Looks, and waits.
const LOOKS: &[&str] = &[
    "access",
    "faccessat",
    "faccessat2",
    "fstat",
    "newfstatat",
    "statx",
    "fstatfs",
    "statfs",
    "getcwd",
    "readlink",
    "readlinkat",
    "getdents64",
    "read",
    "pread64",
    "readv",
    "getpid",
    "gettid",
    "getuid",
    "geteuid",
    "getrandom",
    "getsockname",
    "getsockopt",
    "prlimit64",
    "sched_getaffinity",
    "uname",
    "clock_gettime",
    "recvmsg",
    "recvfrom",
    "poll",
    "ppoll",
    "futex",
    "restart_syscall",
    "wait4",
    "waitid",
    "nanosleep",
    "clock_nanosleep",
    "sched_yield",
];

fn changes(name: &str, arguments: &str) -> bool {
    match name {
        "open" | "openat" => arguments.contains("O_CREAT") || arguments.contains("O_TRUNC"),
        // Locks; what it asks and sets else is of the file descriptor.
        "fcntl" => arguments.contains("SETLK"),
        _ if CHANGING.contains(&name) => true,
        _ if OWN.contains(&name) || LOOKS.contains(&name) => false,
        _ => panic!("{name}({arguments}: does it change something? It belongs into a list here"),
    }
}

/// One line of a trace: thread, system call, and the rest of the line.
fn split(line: &str, follows: bool) -> Option<(&str, &str, &str)> {
    let (thread, call) = if follows {
        line.split_once(' ')?
    } else {
        ("", line)
    };
    let (name, rest) = call.trim_start().split_once('(')?;
    // "<... read resumed>", "--- SIGCHLD {...} ---", "+++ exited with 0 +++"
    let is_call = name.starts_with(|c: char| c.is_ascii_lowercase());
    is_call.then_some((thread, name, rest))
}

/// All of a traced run. strace counts calls for each thread by itself.
pub(super) fn points(
    log: &Path,
    follows: bool,
    counted: impl Fn(&str, &str) -> bool,
) -> Vec<Point> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut points = Vec::new();
    let log = std::fs::read_to_string(log).unwrap();
    for (thread, name, rest) in log.lines().filter_map(|line| split(line, follows)) {
        // Settings wait for the kernel's RTNL lock by starting again.
        if rest.contains("ERESTART") {
            continue;
        }
        let count = counts
            .entry((thread.to_owned(), name.to_owned()))
            .or_default();
        *count += 1;
        let point = (name.to_owned(), *count);
        if counted(name, rest) && !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

/// Those of the plugin.
pub(super) fn changing_points(log: &Path, follows: bool) -> Vec<Point> {
    let points = points(log, follows, changes);
    assert!(points.len() > 15, "{points:?}");
    points
}

/// strace's options for a kill at that point.
pub(super) fn kill_at((name, count): &Point) -> [String; 4] {
    let inject = format!("inject={name}:signal=KILL:when={count}");
    [
        "-e".to_owned(),
        format!("trace={name}"),
        "-e".to_owned(),
        inject,
    ]
}

#[test]
#[should_panic(expected = "does it change something")]
fn a_system_call_that_nobody_has_thought_of_is_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    std::fs::write(&log, "7 read(3, \"\", 8) = 0\n7 mount(NULL, \"/\") = 0\n").unwrap();
    changing_points(&log, true);
}
