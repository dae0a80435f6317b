//! The few bpf(2) commands that aya 0.14 has no function for: it can neither replace
//! the program of a pinned cgroup link, detach it, nor tell which cgroup a link belongs to.
#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper for these commands")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

// enum bpf_cmd of linux/bpf.h
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;

/// `BPF_LINK_TYPE_CGROUP` of `enum bpf_link_type`.
const LINK_TYPE_CGROUP: u32 = 3;

/// The members of `union bpf_attr` for `BPF_OBJ_GET`.
#[repr(C)]
struct ObjGet {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// The members of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// The members of `union bpf_attr` for `BPF_LINK_UPDATE`.
#[repr(C)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// The members of `union bpf_attr` for `BPF_LINK_DETACH`.
#[repr(C)]
struct LinkDetach {
    link_fd: u32,
}

/// `struct bpf_link_info` up to the members for cgroup links.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawLinkInfo {
    link_type: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    cgroup_id: u64,
    attach_type: u32,
    pad2: u32,
}

const LINK_INFO_LEN: u32 = 32;
const _: () = assert!(size_of::<RawLinkInfo>() == LINK_INFO_LEN as usize);

/// What the kernel says of a cgroup link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CgroupLinkInfo {
    /// The program that it runs.
    pub(crate) program_id: u32,
    /// The cgroup; 0 when that is gone.
    pub(crate) cgroup_id: u64,
}

/// Opens a pinned link; whether it is one shows in [`cgroup_link_info`].
pub(crate) fn obj_get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjGet {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    let fd = bpf(BPF_OBJ_GET, &mut attr)?;
    // SAFETY: the kernel just opened it for us (with close-on-exec set).
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// None when the file descriptor is something other than a cgroup link.
pub(crate) fn cgroup_link_info(link: &OwnedFd) -> io::Result<Option<CgroupLinkInfo>> {
    let mut info = RawLinkInfo::default();
    let mut attr = InfoByFd {
        bpf_fd: raw(link),
        info_len: LINK_INFO_LEN,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(
        (info.link_type == LINK_TYPE_CGROUP).then_some(CgroupLinkInfo {
            program_id: info.prog_id,
            cgroup_id: info.cgroup_id,
        }),
    )
}

/// Replaces the program of a link in one step.
pub(crate) fn link_update(link: &OwnedFd, program: impl AsFd) -> io::Result<()> {
    let mut attr = LinkUpdate {
        link_fd: raw(link),
        new_prog_fd: raw(program),
        flags: 0,
        old_prog_fd: 0,
    };
    bpf(BPF_LINK_UPDATE, &mut attr).map(drop)
}

/// Takes a link off its cgroup now. Without this the kernel does it some time after
/// the last reference is gone.
pub(crate) fn link_detach(link: &OwnedFd) -> io::Result<()> {
    let mut attr = LinkDetach { link_fd: raw(link) };
    bpf(BPF_LINK_DETACH, &mut attr).map(drop)
}

fn raw(fd: impl AsFd) -> u32 {
    u32::try_from(fd.as_fd().as_raw_fd()).expect("a borrowed descriptor is not negative")
}

fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<RawFd> {
    let size = size_of::<T>();
    // SAFETY: `attr` is writable, `size` bytes long, fully initialised (no implicit
    // padding in the structs above), and what it points to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size) };
    match RawFd::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
