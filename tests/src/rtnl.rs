//! The kernel's RTNL lock, held from user space.
//!
//! `SIOCGIFCONF` writes its list under the lock. The page that it writes to is one whose
//! faults this process handles (userfaultfd(2)), and it does not handle this one.

#![allow(
    unsafe_code,
    reason = "userfaultfd and the old ioctl have no safe wrapper"
)]

use std::io::{Error, Result};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::thread::JoinHandle;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// include/uapi/linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const PAGE: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct ifconf`.
#[repr(C)]
struct InterfaceList {
    length: libc::c_int,
    buffer: u64,
}

mod call {
    #![allow(missing_docs, reason = "the macros make them public, without a word")]

    nix::ioctl_readwrite!(uffdio_api, 0xaa, 0x3f, super::Api);
    nix::ioctl_readwrite!(uffdio_register, 0xaa, 0x00, super::Register);
    nix::ioctl_readwrite_bad!(interface_list, libc::SIOCGIFCONF, super::InterfaceList);
}

/// While it lives, no interface of this machine can be changed, in no namespace. Keep it for
/// seconds at most.
#[derive(Debug)]
pub struct HeldRtnl {
    faults: Option<OwnedFd>,
    holder: Option<JoinHandle<()>>,
}

impl HeldRtnl {
    /// Takes the lock. The calling thread's namespace needs an interface with an IPv4 address,
    /// such as `lo` that is up.
    ///
    /// # Errors
    /// Where the kernel has no userfaultfd, or keeps it from us.
    pub fn take() -> Result<Self> {
        // SAFETY: a system call that makes a file descriptor, which is owned from here on.
        let faults = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let fd = i32::try_from(fd).unwrap_or(-1);
            if fd < 0 {
                return Err(Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let page = page()?;
        let mut api = Api {
            version: UFFD_API,
            ..Api::default()
        };
        let mut register = Register {
            start: page,
            length: PAGE as u64,
            mode: MODE_MISSING,
            ..Register::default()
        };
        // SAFETY: both structures are laid out as the kernel's, and the page stays mapped.
        unsafe {
            call::uffdio_api(faults.as_raw_fd(), &raw mut api)?;
            call::uffdio_register(faults.as_raw_fd(), &raw mut register)?;
        }
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let holder = std::thread::spawn(move || {
            let mut list = InterfaceList {
                length: 4096,
                buffer: page,
            };
            // SAFETY: the kernel writes at most `length` bytes to the page, which stays mapped.
            let listed = unsafe { call::interface_list(socket.as_raw_fd(), &raw mut list) };
            listed.expect("the page can be written to when its fault is over");
        });
        let held = Self {
            faults: Some(faults),
            holder: Some(holder),
        };
        held.await_fault()?;
        Ok(held)
    }

    fn await_fault(&self) -> Result<()> {
        use std::os::fd::AsFd as _;
        let faults = self.faults.as_ref().expect("it ends with the guard");
        let mut fds = [PollFd::new(faults.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(5000u16))? {
            0 => Err(Error::other("the kernel has not written its list")),
            _ => Ok(()),
        }
    }
}

impl Drop for HeldRtnl {
    fn drop(&mut self) {
        // Who waits for the fault goes on with an empty page.
        drop(self.faults.take());
        if let Some(holder) = self.holder.take() {
            // Its panic has been printed; who drops may be panicking already.
            holder.join().ok();
        }
    }
}

/// A page that nobody has touched. It is never unmapped: the kernel may write to it.
fn page() -> Result<u64> {
    // SAFETY: a new private mapping, which overlaps nothing.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    Ok(page as u64)
}
