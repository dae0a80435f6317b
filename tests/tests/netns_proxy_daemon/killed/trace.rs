//! What strace says of a sync: which calls change something, and when they came.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::points::{Kill, Point};

/// The programs after whose start the daemon does something itself: what it does to files
/// comes after the first one's, and what it does to flows after the last one's.
const FIRST: &str = "ipset-create";
const LAST: &str = "ipset-destroy";
/// Of NodePorts on 127.0.0.1.
const SYSCTL: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Questions of iptables and ipset.
const QUESTIONS: [&str; 5] = [
    "_GET",
    "_CMD_PROTOCOL",
    "_CMD_TYPE",
    "_CMD_LIST",
    "_CMD_HEADER",
];

/// A point and its time, as strace writes it.
type Timed = (String, Point);

/// What `program.sh` has left of a traced sync.
pub(super) struct Trace<'a> {
    pub(super) folder: &'a Path,
    /// The file that remembers who has set [`SYSCTL`].
    pub(super) memory: &'a Path,
}

impl Trace<'_> {
    /// In the order in which they came.
    pub(super) fn points(&self) -> Vec<Point> {
        let entries = fs::read_dir(self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let logs = names.filter_map(|name| name.strip_prefix("log.").map(str::to_owned));
        let mut timed = self.of_daemon();
        for program in logs.filter(|log| log != "daemon") {
            timed.extend(of_program(
                &program,
                &self.log(&program),
                &self.input(&program),
            ));
        }
        timed.sort_by(|(one, _), (other, _)| one.cmp(other));
        timed.into_iter().map(|(_, point)| point).collect()
    }

    /// Nothing of one that was not started.
    fn log(&self, program: &str) -> String {
        fs::read_to_string(self.folder.join(format!("log.{program}"))).unwrap_or_default()
    }

    fn input(&self, program: &str) -> String {
        fs::read_to_string(self.folder.join(format!("in.{program}"))).unwrap()
    }

    /// Calls of its own. strace counts them for each thread by itself.
    fn of_daemon(&self) -> Vec<Timed> {
        let (log, last) = (self.log("daemon"), self.log(LAST));
        let last = last.lines().find_map(Call::parse);
        let mut sent: BTreeMap<&str, usize> = BTreeMap::new();
        let mut points: Vec<Timed> = Vec::new();
        for call in log.lines().filter_map(Call::parse) {
            let point = if call.name == "sendto" {
                if last.as_ref().is_none_or(|last| call.time < last.time) {
                    continue;
                }
                let count = sent.entry(call.thread).or_default();
                *count += 1;
                let forgets = call.rest.contains("IPCTNL_MSG_CT_DELETE");
                forgets.then(|| daemon(LAST, &call, *count, None))
            } else {
                let file = self.file(&call);
                file.map(|path| daemon(FIRST, &call, 1, Some(path.to_owned())))
            };
            // Whichever thread comes that far first is killed.
            let is_new = |point: &Point| points.iter().all(|(_, known)| known != point);
            if let Some(point) = point.filter(is_new) {
                points.push((call.time.to_owned(), point));
            }
        }
        points
    }

    /// The file that a call changes, if it is one of the daemon's.
    fn file(&self, call: &Call<'_>) -> Option<&Path> {
        let memory = call.rest.contains(self.memory.to_str()?);
        match call.name {
            "openat" if memory && call.rest.contains("O_CREAT") => Some(self.memory),
            "unlink" | "unlinkat" if memory => Some(self.memory),
            "write" if call.rest.contains(SYSCTL) => Some(Path::new(SYSCTL)),
            _ => None,
        }
    }
}

fn daemon(program: &str, call: &Call<'_>, count: usize, path: Option<PathBuf>) -> Point {
    let call = call.name.to_owned();
    Point {
        program: program.to_owned(),
        kill: Kill::Daemon { call, count, path },
    }
}

/// Of a program that has written something; it may have been started several times.
fn of_program(program: &str, log: &str, input: &str) -> Vec<Timed> {
    let point = |kill| Point {
        program: program.to_owned(),
        kill,
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut calls: Vec<Timed> = Vec::new();
    for line in log.lines() {
        let Some(call) = Call::parse(line) else {
            if line.contains("+++") {
                counts.clear();
            }
            continue;
        };
        let count = counts.entry(call.name).or_default();
        *count += 1;
        let kill = Kill::Both {
            call: call.name.to_owned(),
            count: *count,
        };
        let new = point(kill);
        if call.changes() && calls.iter().all(|(_, known)| *known != new) {
            calls.push((call.time.to_owned(), new));
        }
    }
    let Some((begun, _)) = calls.first() else {
        return calls;
    };
    let mute = |after| (begun.clone(), point(Kill::Mute { after }));
    let mutes: Vec<Timed> = cuts(input).into_iter().map(mute).collect();
    [mutes, calls].concat()
}

/// Where somebody who dies may have stopped: before the first word; within a line, in its last
/// word, which is a number for ipset; and between two tables.
fn cuts(input: &str) -> Vec<usize> {
    let ends: Vec<usize> = input.match_indices('\n').map(|(at, _)| at + 1).collect();
    let within = ends.get(ends.len() / 2).map(|end| end - 3);
    let table = input.find("COMMIT\n").map(|at| at + "COMMIT\n".len());
    let table = table.filter(|end| *end < input.len());
    [Some(0), within, table].into_iter().flatten().collect()
}

/// A line of strace's.
#[derive(Debug, PartialEq, Eq)]
struct Call<'a> {
    /// Empty where there is but one.
    thread: &'a str,
    time: &'a str,
    name: &'a str,
    rest: &'a str,
}

impl<'a> Call<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (head, rest) = line.split_once('(')?;
        let mut words = head.split_ascii_whitespace().rev();
        let (name, time) = (words.next()?, words.next()?);
        let thread = words.next().unwrap_or_default();
        // Not the end of a call that another thread's had come into, nor an error's name.
        let is_call = name.starts_with(|c: char| c.is_ascii_lowercase()) && time.contains('.');
        is_call.then_some(Self {
            thread,
            time,
            name,
            rest,
        })
    }

    /// Whether it is more than a question, or a setting of its socket.
    fn changes(&self) -> bool {
        match self.name {
            "setsockopt" => self.rest.contains("SOL_IP"),
            "sendto" => !QUESTIONS.iter().any(|word| self.rest.contains(word)),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(points: Vec<Timed>) -> Vec<String> {
        let shown = points.into_iter().map(|(_, point)| point.to_string());
        shown.collect()
    }

    #[test]
    fn a_program_that_is_started_again_counts_again_and_questions_do_not_matter() {
        let started = "1.5 sendto(3, [{nlmsg_type=NFNL_SUBSYS_IPSET<<8|IPSET_CMD_PROTOCOL}], 28)\n\
                       1.6 sendto(3, [{nlmsg_type=NFNL_SUBSYS_IPSET<<8|IPSET_CMD_DESTROY}], 44)\n\
                       1.7 +++ exited with 0 +++\n";
        let log = format!("{started}{started}");
        let points = shown(of_program("ipset-destroy", &log, "destroy a\n"));
        let want = ["mute - 0", "mute - 7", "both sendto 2"];
        assert_eq!(points, want.map(|kill| format!("ipset-destroy {kill}")));
    }

    #[test]
    fn calls_of_the_daemon_are_those_for_its_file_and_for_flows_by_thread() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "log.ipset-destroy",
            "2.0 sendto(3, [{IPSET_CMD_PROTOCOL}], 28) = 28\n",
        );
        write("in.ipset-destroy", "destroy a\n");
        let log = "8 1.0 openat(AT_FDCWD, \"/m\", O_WRONLY|O_CREAT) = 9\n\
                   8 1.1 write(2</log>, \"hello\", 5) = 5\n\
                   9 1.9 sendto(4, [{IPCTNL_MSG_CT_DELETE}], 20 <unfinished ...>\n\
                   9 2.1 sendto(4, [{IPCTNL_MSG_CT_GET}], 20) = 20\n\
                   9 2.2 <... sendto resumed>) = -1 EAGAIN (Resource temporarily unavailable)\n\
                   9 2.3 sendto(4, [{IPCTNL_MSG_CT_DELETE}], 20) = 20\n\
                   7 2.4 sendto(4, [{IPCTNL_MSG_CT_DELETE}], 20) = 20\n\
                   7 2.5 sendto(4, [{IPCTNL_MSG_CT_DELETE}], 20) = 20\n";
        write("log.daemon", log);
        let trace = Trace {
            folder: folder.path(),
            memory: Path::new("/m"),
        };
        let points: Vec<String> = trace.points().iter().map(Point::to_string).collect();
        let want = [
            "ipset-create daemon openat 1 /m",
            "ipset-destroy daemon sendto 2",
            "ipset-destroy daemon sendto 1",
        ];
        assert_eq!(points, want);
    }

    #[test]
    fn whoever_dies_stops_at_once_within_a_line_or_between_tables() {
        assert_eq!(cuts("create a timeout 10800\n"), [0, 20]);
        let tables = "*filter\n:A - [0:0]\nCOMMIT\n*nat\nCOMMIT\n";
        assert_eq!(cuts(tables), [0, 23, 26]);
        assert_eq!(cuts(""), [0]);
    }
}
