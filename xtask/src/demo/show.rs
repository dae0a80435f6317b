//! What a person sees of the demo.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, bail};
use seaway_testbed::node::Node;

/// Numbered steps, each with the time since the start.
#[derive(Debug)]
pub(super) struct Steps {
    started: Instant,
    number: u32,
}

/// A line of the current step.
pub(super) fn say(line: &str) {
    println!("    {line}");
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            number: 0,
        }
    }
}

impl Steps {
    /// Begins a step.
    pub(super) fn next(&mut self, what: &str) {
        self.number += 1;
        println!(
            "\n[{:5.1} s] {}. {what}",
            self.started.elapsed().as_secs_f64(),
            self.number
        );
    }

    /// The last line.
    pub(super) fn end(&self) {
        println!(
            "\ndemo: all as it should be, in {:.1} s",
            self.started.elapsed().as_secs_f64()
        );
    }
}

/// Who answered, and how often.
pub(super) fn answers(command: &str, answers: &BTreeMap<String, u32>) {
    say(&format!("$ {command}"));
    for (name, times) in answers {
        say(&format!("{name} ({times}x)"));
    }
}

/// Runs one of our programs on the node and shows what it prints.
pub(super) fn command(node: &Node, words: &[&str]) -> Result<()> {
    say(&format!("$ {}", words.join(" ")));
    let program = seaway_testbed::bin(words[0]);
    let output = node.place().command(program).args(&words[1..]).output()?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        say(line);
    }
    Ok(())
}
