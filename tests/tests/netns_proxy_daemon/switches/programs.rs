//! Programs in the node's cgroup, where eBPF meets them, of the node itself or of a pod: one
//! that asks all the time, and one that keeps a connection.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use seaway_testbed::{Netns, bin};

use crate::node::Node;

/// Asks again and again, until told to stop or for a few minutes.
const ASK: &str = "set -f; n=0; while [ ! -e $DIR/stop ] && [ $n -lt 20000 ]; do n=$((n + 1)); \
    for vip in $VIPS; do \
        $PEER ask tcp $vip >> $DIR/$NAME 2>&1 || echo REFUSED >> $DIR/$NAME; \
    done; done";

/// New connections, one after the other.
pub(super) struct Asker {
    child: Child,
    answers: PathBuf,
}

impl Asker {
    pub(super) fn start(node: &Node, place: &Netns, name: &str, vips: &[&str]) -> Self {
        let mut command = node.command_in(place, "sh");
        command.args(["-c", ASK]).env("PEER", bin("seaway-peer"));
        command.env("DIR", node.path("")).env("NAME", name);
        let child = command.env("VIPS", vips.join(" ")).spawn().unwrap();
        let answers = node.path(name);
        Self { child, answers }
    }

    fn answers(&self) -> String {
        fs::read_to_string(&self.answers).unwrap_or_default()
    }

    pub(super) fn answered(&self) -> usize {
        self.answers().matches("web").count()
    }

    /// After [`stop`]; nobody must have been refused.
    #[track_caller]
    pub(super) fn end(mut self) {
        self.child.wait().unwrap();
        let answers = self.answers();
        assert!(!answers.contains("REFUSED"), "{answers}");
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // It has ended already, or shall now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Ends all that ask on this node.
pub(super) fn stop(node: &Node) {
    fs::write(node.path("stop"), "").unwrap();
}

/// A connection that stays open.
pub(super) struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// How the server has greeted.
    greeting: String,
}

impl Holder {
    #[track_caller]
    pub(super) fn open(node: &Node, place: &Netns, vip: &str) -> Self {
        let mut command = node.command_in(place, bin("seaway-peer"));
        command.args(["hold", vip]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Self {
            child,
            input,
            output,
            greeting: String::new(),
        };
        holder.greeting = holder.line();
        assert!(holder.greeting.starts_with("web "), "{vip}: no connection");
        holder
    }

    /// Nothing from one that has ended, which has said why to standard error.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    pub(super) fn check(&mut self, at: &str) {
        // To one that has ended nothing can be written, and it does not answer.
        writeln!(self.input, "still there?").ok();
        assert_eq!(self.line(), "held\n", "{at}: {}", self.greeting);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It has ended already, or shall now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
