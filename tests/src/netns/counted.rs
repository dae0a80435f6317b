//! What the kernel counts in a namespace.

use super::Netns;

impl Netns {
    /// First packets of TCP that were sent again: after a second without an answer, or at once
    /// where what is left of an earlier connection is met.
    #[track_caller]
    #[must_use]
    pub fn repeated_syns(&self) -> u64 {
        self.counted("netstat", "TcpExt:", "TCPSynRetrans")
    }

    /// Segments of TCP with RST that were sent.
    #[track_caller]
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.counted("snmp", "Tcp:", "OutRsts")
    }

    /// The count of this name, in this group of this file of `/proc/net`.
    #[track_caller]
    fn counted(&self, file: &str, group: &str, name: &str) -> u64 {
        let path = format!("/proc/thread-self/net/{file}");
        let text = self.enter(|| std::fs::read_to_string(path));
        let text = text.unwrap_or_else(|error| panic!("read {file}: {error}"));
        let mut lines = text.lines().filter(|line| line.starts_with(group));
        let names = lines.next().unwrap_or_default().split(' ');
        let values = lines.next().unwrap_or_default().split(' ');
        let count = names.zip(values).find(|(key, _)| *key == name);
        let count = count.and_then(|(_, value)| value.parse().ok());
        count.unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}
