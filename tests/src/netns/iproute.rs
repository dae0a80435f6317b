//! What iproute2 sets in a namespace of a test.

use std::io::Write as _;

use super::{Netns, settle};

impl Netns {
    /// Runs `ip ARGS` inside (arguments are split at blanks) and returns what it printed.
    /// An IPv6 address that it has set receives packets by then.
    ///
    /// # Panics
    /// When it fails, with its error text.
    #[track_caller]
    pub fn ip(&self, args: &str) -> String {
        let words: Vec<&str> = std::iter::once("ip")
            .chain(args.split_whitespace())
            .collect();
        let printed = self.must_run(&words);
        settle::settle(self, args);
        printed
    }

    /// The same with several lines of arguments, in one process, which counts where a test
    /// needs a dozen of them and the machine is an emulated one.
    ///
    /// # Panics
    /// When one of them fails, with its number and error text; those after it are not run.
    #[track_caller]
    pub fn ip_lines(&self, lines: &[String]) {
        // `ip` reads a pipe that is written and closed before; a few lines fit into it.
        let (reader, writer) = std::io::pipe().expect("there are free file descriptors");
        (&writer)
            .write_all(lines.join("\n").as_bytes())
            .expect("the reader lives");
        drop(writer);
        let mut command = self.command("ip");
        let output = command.args(["-batch", "-"]).stdin(reader).output();
        let output = output.unwrap_or_else(|error| panic!("{}: start ip: {error}", self.name));
        assert!(
            output.status.success(),
            "{}: `ip -batch` failed: {}in {lines:#?}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        for line in lines {
            settle::settle(self, line);
        }
    }

    /// Runs `ip -j ARGS` inside and parses what it printed; nothing counts as an empty list.
    #[track_caller]
    pub fn ip_json(&self, args: &str) -> serde_json::Value {
        let text = self.ip(&format!("-j {args}"));
        let text = if text.trim().is_empty() {
            "[]"
        } else {
            text.as_str()
        };
        serde_json::from_str(text).unwrap_or_else(|error| panic!("ip -j {args}: {error}: {text}"))
    }
}

/// Joins two namespaces by a veth pair, both ends up and with an address:
/// `connect(&a, "eth0", "10.0.0.1/24", &b, "eth0", "10.0.0.2/24")`.
#[track_caller]
pub fn connect(
    a: &Netns,
    a_ifname: &str,
    a_address: &str,
    b: &Netns,
    b_ifname: &str,
    b_address: &str,
) {
    let end = |ifname: &str, address: &str| {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        [
            format!("addr add {address} dev {ifname} {nodad}"),
            format!("link set {ifname} up"),
        ]
    };
    let pair = format!(
        "link add {a_ifname} type veth peer name {b_ifname} netns {}",
        b.name()
    );
    let [address, up] = end(a_ifname, a_address);
    a.ip_lines(&[pair, address, up]);
    b.ip_lines(&end(b_ifname, b_address));
}
