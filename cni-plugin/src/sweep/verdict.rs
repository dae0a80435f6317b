//! Who is dead: decided from what was seen, without looking.

use std::io;

use seaway_netlink::Link;

/// The host's end of an attachment's pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Veth {
    /// Brought up, which ADD does before the pod has an address.
    up: bool,
    /// The other end's namespace is going away, and both ends with it.
    dying: bool,
}

/// The namespace that an attachment was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// At its path is the same namespace.
    There,
    /// At its path is nothing, or another one. It may still live on elsewhere.
    Gone,
    /// The path could not be looked at.
    Unknown,
}

impl Veth {
    pub(crate) fn of(link: &Link) -> Self {
        Self {
            up: link.up,
            dying: link.peer_netns.is_some_and(|id| id < 0),
        }
    }

    /// Whether the other end is as good as gone.
    pub(crate) fn is_dead(self) -> bool {
        self.dying
    }

    /// Whether it may be carrying somebody's packets.
    pub(crate) fn is_alive(self) -> bool {
        self.up && !self.dying
    }
}

impl Namespace {
    pub(crate) fn unopened(error: &io::Error) -> Self {
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
        match error.kind() {
            // `InvalidInput`: a file that is no namespace, as a mount leaves it.
            NotFound | NotADirectory | InvalidInput => Self::Gone,
            _ => Self::Unknown,
        }
    }
}

/// Whether an attachment is that of a dead pod. Both must be gone: a path
/// disappears while processes live on inside, and an interface may have been
/// deleted in a pod that lives.
pub(crate) fn is_left_behind(veth: Option<Veth>, namespace: Namespace) -> bool {
    namespace == Namespace::Gone && veth.is_none_or(Veth::is_dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_left_behind_when_both_are_gone() {
        let veth = |up, dying| Some(Veth { up, dying });
        for namespace in [Namespace::There, Namespace::Gone, Namespace::Unknown] {
            let gone = namespace == Namespace::Gone;
            for (veth, expected) in [
                (None, gone),
                (veth(true, false), false),
                (veth(false, false), false),
                (veth(true, true), gone),
            ] {
                assert_eq!(
                    is_left_behind(veth, namespace),
                    expected,
                    "{veth:?} {namespace:?}"
                );
            }
        }
    }

    #[test]
    fn an_interface_without_a_record_is_alive_while_it_can_carry_packets() {
        for (up, dying, alive) in [
            (true, false, true),
            (false, false, false),
            (true, true, false),
        ] {
            assert_eq!(Veth { up, dying }.is_alive(), alive);
        }
    }

    #[test]
    fn only_what_is_surely_no_namespace_is_gone() {
        let judge = |errno| Namespace::unopened(&io::Error::from_raw_os_error(errno));
        assert_eq!(judge(nix::libc::ENOENT), Namespace::Gone);
        assert_eq!(judge(nix::libc::EMFILE), Namespace::Unknown);
        assert_eq!(judge(nix::libc::EACCES), Namespace::Unknown);
    }
}
