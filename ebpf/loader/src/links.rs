//! Attaching programs so that no moment is without one.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, CgroupSockAddr, Program, ProgramError, loaded_programs};
use tracing::{debug, info};

use crate::Error;
use crate::cgroup::Cgroup;
use crate::pins::{self, Pins};
use crate::sys;

/// Whether a pinned link runs a program on these maps, which means that an earlier
/// process had filled them before it attached anything.
pub(crate) fn any_uses(pins: &Pins, maps: [u32; 2]) -> Result<bool, Error> {
    for name in seaway_ebpf_abi::PROGRAMS {
        let Some(info) = pinned(name, &pins.link(name))?.map(|(_, info)| info) else {
            continue;
        };
        if program_uses(info.program_id, maps) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The programs of this process that run on `cgroup` by a pinned link.
pub(crate) fn attached(
    pins: &Pins,
    cgroup: &Cgroup,
    object: &mut aya::Ebpf,
) -> Result<BTreeSet<&'static str>, Error> {
    let mut attached = BTreeSet::new();
    for name in seaway_ebpf_abi::PROGRAMS {
        let Some((_, link)) = pinned(name, &pins.link(name))? else {
            continue;
        };
        let ours = program(object, name)?
            .info()
            .map_err(|source| refused(name, cgroup, source))?;
        if link.cgroup_id == cgroup.id && link.program_id == ours.id() {
            attached.insert(name);
        }
    }
    Ok(attached)
}

/// Programs that work on the pinned maps by a pinned link on `cgroup`, whoever loaded them.
pub(crate) fn working(pins: &Pins, cgroup: &Cgroup) -> Result<BTreeSet<&'static str>, Error> {
    let maps = pins.config_map_ids()?;
    let mut working = BTreeSet::new();
    for name in seaway_ebpf_abi::PROGRAMS {
        let link = pinned(name, &pins.link(name))?.map(|(_, info)| info);
        if link.is_some_and(|link| link.cgroup_id == cgroup.id && link.program_id != 0) {
            working.insert(name);
        }
    }
    // Not each of them looks into both maps, but one that serves does.
    let any = any_uses(pins, maps)?;
    Ok(if any { working } else { BTreeSet::new() })
}

fn program_uses(program: u32, maps: [u32; 2]) -> bool {
    let program = loaded_programs()
        .filter_map(Result::ok)
        .find(|p| p.id() == program);
    let used = program
        .and_then(|p| p.map_ids().ok().flatten())
        .unwrap_or_default();
    maps.iter().all(|map| used.contains(map))
}

/// Makes the pinned link of `name` run `program` on `cgroup`: swaps the program in
/// place where the link is there, makes a new link where not.
pub(crate) fn attach(
    pins: &Pins,
    cgroup: &Cgroup,
    name: &'static str,
    program: &mut CgroupSockAddr,
) -> Result<(), Error> {
    let path = pins.link(name);
    match pinned(name, &path)? {
        Some((link, info)) if info.cgroup_id == cgroup.id => {
            let fd = program
                .fd()
                .map_err(|source| refused(name, cgroup, source))?;
            match sys::link_update(&link, fd) {
                Ok(()) => {
                    debug!(program = name, "Replaced an attached eBPF program");
                    return Ok(());
                }
                // The cgroup went away and took the attachment along.
                Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {}
                Err(source) => {
                    return Err(Error::Link {
                        operation: "update",
                        name,
                        source,
                    });
                }
            }
        }
        Some((_, info)) => {
            info!(
                program = name,
                cgroup_id = info.cgroup_id,
                "Moving an eBPF program to another cgroup"
            );
        }
        None => {}
    }
    create(&path, cgroup, name, program)
}

fn create(
    path: &Path,
    cgroup: &Cgroup,
    name: &'static str,
    program: &mut CgroupSockAddr,
) -> Result<(), Error> {
    let refused = |source| refused(name, cgroup, source);
    // Links always allow others beside them; the other modes are refused for links.
    let id = program
        .attach(&cgroup.dir, CgroupAttachMode::Single)
        .map_err(refused)?;
    let link = program.take_link(id).map_err(refused)?;
    let link = FdLink::try_from(link).map_err(|_not_a_link| {
        let source = io::Error::from(ErrorKind::Unsupported);
        Error::Link {
            operation: "creation",
            name,
            source,
        }
    })?;
    pins::replace(path, |path| {
        link.pin(path).map(drop).map_err(io::Error::other)
    })
    .map_err(|source| Error::Link {
        operation: "pinning",
        name,
        source,
    })?;
    debug!(program = name, cgroup = %cgroup.path.display(), "Attached an eBPF program");
    Ok(())
}

/// The link pinned at `path`; none when there is none or it is something else.
fn pinned(
    name: &'static str,
    path: &Path,
) -> Result<Option<(std::os::fd::OwnedFd, sys::CgroupLinkInfo)>, Error> {
    let link = match sys::obj_get(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| Error::Link {
            operation: "opening",
            name,
            source,
        })?,
    };
    // Other kinds of objects answer the question with other structures, or EINVAL.
    let info = sys::cgroup_link_info(&link).ok().flatten();
    Ok(info.map(|info| (link, info)))
}

fn refused(name: &'static str, cgroup: &Cgroup, source: ProgramError) -> Error {
    Error::Attach {
        name,
        cgroup: cgroup.path.clone(),
        source: Box::new(source),
    }
}

/// A program of the object by name.
pub(crate) fn program<'a>(
    object: &'a mut aya::Ebpf,
    name: &'static str,
) -> Result<&'a mut CgroupSockAddr, Error> {
    match object.program_mut(name) {
        Some(Program::CgroupSockAddr(program)) => Ok(program),
        _ => Err(Error::Missing { name }),
    }
}
