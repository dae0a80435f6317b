//! What the kernel keeps back before it wakes anybody: a classic BPF program.

use std::io;
use std::os::fd::BorrowedFd;

use socket2::{SockFilter, SockRef};

use crate::IfIndex;

/// `RTM_NEWNEIGH` and `RTM_DELNEIGH`, include/uapi/linux/rtnetlink.h.
const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
/// Of `nlmsg_type` in `struct nlmsghdr`.
const TYPE: u32 = 4;
/// Of `ndm_ifindex` in `struct ndmsg`, which follows the header.
const NEIGHBOUR_LINK: u32 = 16 + 4;
/// `BPF_LD | BPF_ABS` of 2 and of 4 bytes, `BPF_JMP | BPF_JEQ` and `BPF_RET`,
/// include/uapi/linux/bpf_common.h.
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Takes the place of a filter that is there already, without a gap.
pub(super) fn attach(socket: BorrowedFd<'_>, link: Option<IfIndex>) -> io::Result<()> {
    SockRef::from(&socket).attach_filter(&program(link))
}

/// Multicasts of the kernel are one message each.
fn program(link: Option<IfIndex>) -> Vec<SockFilter> {
    let keep = SockFilter::new(RETURN, 0, 0, u32::MAX);
    let Some(IfIndex(link)) = link else {
        return vec![keep];
    };
    let kind = |kind: u16| u32::from(kind.to_be());
    vec![
        SockFilter::new(LOAD_HALF, 0, 0, TYPE),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, kind(NEW_NEIGHBOUR)),
        SockFilter::new(JUMP_IF_EQUAL, 0, 2, kind(DELETE_NEIGHBOUR)),
        SockFilter::new(LOAD_WORD, 0, 0, NEIGHBOUR_LINK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, link.to_be()),
        keep,
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}
