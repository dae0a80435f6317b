//! The BPF objects that the kernel holds, asked by `bpf(2)`.
#![allow(unsafe_code, reason = "no wrapper of this system call is linked here")]

use std::collections::BTreeSet;

/// Kinds and their `BPF_*_GET_NEXT_ID` command, from linux/bpf.h.
const KINDS: [(&str, libc::c_long); 3] = [("program", 11), ("map", 12), ("link", 31)];

/// The used part of `union bpf_attr` for these commands.
#[repr(C)]
struct NextId {
    start: u32,
    next: u32,
    open_flags: u32,
}

/// One line per object: its kind and id, which is never used again. Empty without the right
/// to ask.
pub(super) fn objects() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (kind, command) in KINDS {
        let mut attr = NextId {
            start: 0,
            next: 0,
            open_flags: 0,
        };
        // SAFETY: the kernel reads and writes the 12 bytes that it is told of.
        while unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attr, size_of::<NextId>()) }
            == 0
        {
            found.insert(format!("{kind} {}", attr.next));
            attr.start = attr.next;
        }
    }
    found
}
