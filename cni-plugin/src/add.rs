//! `ADD`: reserve an address, make the interface, report.

use std::io::Write;
use std::os::fd::AsFd as _;
use std::path::Path;

use seaway_netlink::{Netns, Socket};

use crate::args::Args;
use crate::attach::{attach, netlink};
use crate::config::Config;
use crate::del::clear;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Extra, IpamError, Key, Record, Store};
use crate::plan::{Identity, Plan};
use crate::result::CniResult;
use crate::sysctl;
use crate::undo::Undo;

/// Carries out `ADD` and writes its result; on failure, also of the writing,
/// nothing is left.
pub(crate) fn add(config: Config, args: &Args, stdout: &mut dyn Write) -> Result<(), Error> {
    let (netns, sandbox) = open_netns(args)?;
    let mut undo = Undo::default();
    let done = steps(&config, args, &netns, &sandbox, &mut undo).and_then(|ours| {
        let mut result = config.prev_result.unwrap_or_default();
        result.append(ours);
        let text = result.render(config.network.version);
        write_out(stdout, &text)
    });
    match done {
        Ok(()) => {
            undo.commit();
            Ok(())
        }
        Err(failure) => Err(undo.after(failure)),
    }
}

fn steps(
    config: &Config,
    args: &Args,
    netns: &Netns,
    sandbox: &str,
    undo: &mut Undo<'_>,
) -> Result<CniResult, Error> {
    let identity = Identity::of(&args.container_id, &args.ifname);
    let record = Record {
        key: key(args),
        netns: sandbox.to_owned(),
        netns_id: (netns.id().device, netns.id().inode),
        host_ifname: identity.host_ifname.clone(),
        pod: args.pod.clone(),
        extras: extras(config),
    };
    if config.pools.has_v6() {
        sysctl::require_ipv6()?;
    }
    let store = Store::open(&config.network.data_dir, &config.network.name)?;
    store.create()?;
    let busy = store.busy(&record.key)?;
    // The first step, so that taking back is done before others go on.
    undo.push("let other calls go on", move || {
        drop(busy);
        Ok(())
    });
    let before = store.contents(&record.key)?;
    if !before.is_empty() {
        refuse_live(args, netns)?;
        clear(&identity.host_ifname, &before)?;
    }
    let addresses = store.reserve(&config.pools, &record, &[])?.addresses;
    undo.push(format!("release {addresses:?}"), move || {
        Ok(store.release(&record.key).map(drop)?)
    });
    let plan = Plan::new(identity, args, addresses, config);
    attach(&plan, netns, undo)?;
    hostports::open(config, &plan, undo)?;
    Ok(plan.result(sandbox, config.dns.clone()))
}

/// What DEL will have to look for besides the interface.
fn extras(config: &Config) -> Vec<Extra> {
    let host_ports = !config.runtime.port_mappings.is_empty();
    host_ports.then_some(Extra::HostPorts).into_iter().collect()
}

/// A record from before is either a second ADD's, which the specification
/// forbids and which must not harm the first, or that of an ADD that was
/// killed, which is made anew with the same addresses. The difference is that
/// the first has an interface in the pod.
fn refuse_live(args: &Args, netns: &Netns) -> Result<(), Error> {
    let mut pod =
        Socket::open_in(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    match pod.link_by_name(&args.ifname) {
        Ok(_) => Err(Error::AlreadyAttached {
            container_id: args.container_id.clone(),
            ifname: args.ifname.clone(),
        }),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(netlink("look at existing interfaces")(error)),
    }
}

/// Opens the pod's namespace once; it stays the same whatever happens to the
/// path. Also gives the path as text, as the result must repeat it.
pub(crate) fn open_netns(args: &Args) -> Result<(Netns, String), Error> {
    let path = args.netns.as_deref().unwrap_or(Path::new(""));
    let failed = |source| Error::Netns {
        path: path.to_owned(),
        source,
    };
    let netns = Netns::open(path).map_err(failed)?;
    let own = Netns::current().map_err(failed)?;
    if netns.id() == own.id() && !args.own_netns {
        return Err(Error::OwnNetns {
            path: path.to_owned(),
        });
    }
    Ok((netns, path.to_string_lossy().into_owned()))
}

pub(crate) fn key(args: &Args) -> Key {
    Key {
        container_id: args.container_id.clone(),
        ifname: args.ifname.clone(),
    }
}

pub(crate) fn write_out(stdout: &mut dyn Write, text: &str) -> Result<(), Error> {
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|source| Error::Stdout { source })
}

impl From<IpamError> for Error {
    fn from(error: IpamError) -> Self {
        match error {
            IpamError::Exhausted {
                pool,
                size,
                holders,
            } => Self::Exhausted {
                pool,
                size,
                holders,
            },
            IpamError::Taken { address, holder } => Self::AddressTaken {
                address,
                holder: holder.container_id,
            },
            IpamError::OutOfRange { address } => Self::OutOfRange { address },
            IpamError::Locked { path, seconds } => Self::Locked { path, seconds },
            IpamError::File { op, path, source } => Self::File { op, path, source },
        }
    }
}
