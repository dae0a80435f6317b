//! The most memory that a program takes.
//!
//! The kernel counts to a child what its parent had when it was made (`exec_mmap` in
//! fs/exec.c takes over the old high-water mark), so the parent must be small: this program
//! starts itself anew, and that child starts what is weighed. What weighs less than that
//! child, about 3 MB, shows as its weight.
#![allow(unsafe_code, reason = "wait4(2) has no safe form")]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, bail};

/// A command that runs `program` and prints its weight in KiB as the last line of its
/// standard output. Environment and standard input are passed on.
pub(crate) fn command(program: &Path) -> Result<Command> {
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(own);
    command.arg("weigh").arg(program);
    Ok(command)
}

/// The child's side of [`command`].
pub(crate) fn child(program: &Path) -> Result<()> {
    let child = Command::new(program)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let (status, kib) = wait(child.id()).context("wait for it")?;
    if !status.success() {
        bail!("{}: {status}", program.display());
    }
    println!("\n{kib}");
    Ok(())
}

fn wait(pid: u32) -> io::Result<(ExitStatus, i64)> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage, which is numbers only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals that outlive the call, and the child is ours and
    // nobody else waits for it.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    Ok((ExitStatus::from_raw(status), usage.ru_maxrss))
}
