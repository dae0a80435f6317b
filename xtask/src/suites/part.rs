//! The parts that tests belong to, by what they need.

use crate::setup::Scope;

/// The parts, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Quick,
    Kernel,
    Node,
    Vm,
    Cluster,
}

pub(super) const PARTS: [Part; 5] = [
    Part::Quick,
    Part::Kernel,
    Part::Node,
    Part::Vm,
    Part::Cluster,
];

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Kernel => "kernel",
            Self::Node => "node",
            Self::Vm => "vm",
            Self::Cluster => "cluster",
        }
    }

    pub(super) fn scope(self) -> Scope {
        match self {
            Self::Quick => Scope::Build,
            Self::Kernel | Self::Node => Scope::Node,
            Self::Vm => Scope::Vm,
            Self::Cluster => Scope::Cluster,
        }
    }

    /// Which part a test program belongs to: the suites of the test bed by the
    /// beginning of their file's name, everything else is quick.
    pub(super) fn of(package: &str, target: &str) -> Self {
        if package != "seaway-testbed" {
            return Self::Quick;
        }
        match target.split('_').next() {
            Some("netns" | "bpf") => Self::Kernel,
            Some("node") => Self::Node,
            Some("vm") => Self::Vm,
            Some("cluster") => Self::Cluster,
            _ => Self::Quick,
        }
    }

    /// How many tests run side by side, if not as many as there are processors: those
    /// with a machine's worth of processes one at a time, of emulated machines, which
    /// use less than a processor each, two, and of those in namespaces, which wait more than
    /// they work, four.
    fn threads(self) -> Option<u8> {
        match self {
            Self::Node | Self::Cluster => Some(1),
            Self::Vm => Some(2),
            Self::Kernel => Some(4),
            Self::Quick => None,
        }
    }

    /// What its programs are told.
    pub(super) fn arguments(self, filter: Option<&str>) -> Vec<String> {
        let threads = self.threads().map(|n| format!("--test-threads={n}"));
        let filter = filter.map(str::to_owned);
        threads.into_iter().chain(filter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_told_by_their_file_names() {
        assert_eq!(Part::of("seaway-testbed", "netns_fixture"), Part::Kernel);
        assert_eq!(
            Part::of("seaway-testbed", "cluster_skeleton"),
            Part::Cluster
        );
        assert_eq!(Part::of("seaway-testbed", "repo_picture"), Part::Quick);
        assert_eq!(Part::of("seaway-testbed", "seaway_testbed"), Part::Quick);
        assert_eq!(Part::of("seaway-cni", "node_state"), Part::Quick);
    }
}
