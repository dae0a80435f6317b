//! `ADD`: reserve an address, make the interface, report.

use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use seaway_netlink::{Netns, Socket};

use crate::args::Args;
use crate::attach::{attach, complete, netlink};
use crate::config::Config;
use crate::del::clear;
use crate::delegate::Delegate;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Extra, IpamError, Key, Record, Store};
use crate::plan::{Identity, Plan};
use crate::result::CniResult;
use crate::status::require_word;
use crate::sysctl;
use crate::undo::Undo;

/// kubelet gives the runtime four minutes for a sandbox (`runtimeRequestTimeout`
/// twice); a pod that is ready later than this may have nobody who knows of it.
const LONGEST: Duration = Duration::from_mins(2);

/// Carries out `ADD` and writes its result; on failure, also of the writing,
/// nothing is left.
pub(crate) fn add(
    config: &Config,
    args: &Args,
    delegate: Option<Delegate<'_>>,
    stdout: &mut dyn Write,
) -> Result<(), Error> {
    let (netns, sandbox) = open_netns(args)?;
    let (mut undo, start) = (Undo::default(), Instant::now());
    let call = Call {
        config,
        args,
        netns: &netns,
        sandbox: &sandbox,
        delegate,
    };
    let done = call.steps(&mut undo).and_then(|ours| {
        in_time(start.elapsed())?;
        let mut result = config.prev_result.clone().unwrap_or_default();
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

/// The kernel carries out requests inside `sendmsg`, behind everybody else who
/// holds its RTNL lock, where no timeout of ours and no signal is of use. So
/// the time is looked at afterwards.
fn in_time(taken: Duration) -> Result<(), Error> {
    if taken > LONGEST {
        let seconds = taken.as_secs();
        return Err(Error::Late { seconds });
    }
    Ok(())
}

/// What an `ADD` is about.
struct Call<'a> {
    config: &'a Config,
    args: &'a Args,
    netns: &'a Netns,
    sandbox: &'a str,
    delegate: Option<Delegate<'a>>,
}

impl<'a> Call<'a> {
    fn steps(&self, undo: &mut Undo<'a>) -> Result<CniResult, Error> {
        let (config, args) = (self.config, self.args);
        let identity = Identity::of(&args.container_id, &args.ifname);
        let record = self.record(&identity);
        if config.pools.has_v6() {
            sysctl::require_ipv6()?;
        }
        let store = config.store()?;
        require_word(config, store.boot_id())?;
        store.create()?;
        let busy = store.busy(&record.key)?;
        // The first step, so that taking back is done before others go on.
        undo.push("let other calls go on", move || {
            drop(busy);
            Ok(())
        });
        let before = store.contents(&record.key)?;
        if !before.is_empty() {
            refuse_live(args, self.netns)?;
            refuse_live_elsewhere(args, &before)?;
            clear(&store, &record.key, &before)?;
        }
        let early = self.delegate.is_some_and(|other| other.needs_link());
        if early {
            let bare = Plan::without_addresses(identity.clone(), args, config);
            attach(&bare, self.netns, undo)?;
        }
        let given = self.addresses(store, record, undo)?;
        let addresses = given.ips.iter().map(|ip| ip.address.ip()).collect();
        let plan = Plan::new(identity, args, addresses, config).with_routes(&given.routes);
        if plan.has_v6() {
            sysctl::require_ipv6()?;
        }
        if early {
            complete(&plan, self.netns)?;
        } else {
            attach(&plan, self.netns, undo)?;
        }
        hostports::accept_forwarded(&plan.families());
        hostports::open(config, &plan, undo)?;
        let dns = config.runtime.dns.clone().or(config.dns.clone());
        Ok(plan.result(self.sandbox, dns.or(given.dns)))
    }

    fn record(&self, identity: &Identity) -> Record {
        let id = self.netns.id();
        Record {
            key: key(self.args),
            netns: self.sandbox.to_owned(),
            netns_id: (id.device, id.inode),
            host_ifname: identity.host_ifname.clone(),
            pod: self.args.pod.clone(),
            extras: extras(self.config),
            host_ports: self.config.runtime.recorded_ports(),
            ipam: self.delegate.map(|delegate| delegate.recorded()),
        }
    }

    /// From our own pools, or from another plugin, whose choice is recorded so
    /// that nobody has the address twice.
    fn addresses(
        &self,
        store: Store,
        record: Record,
        undo: &mut Undo<'a>,
    ) -> Result<CniResult, Error> {
        let given = match self.delegate {
            None => None,
            Some(delegate) => {
                // Also what a failed ADD of it may have left.
                undo.push("DEL of the IPAM plugin", move || delegate.tell("DEL"));
                Some(delegate.add()?)
            }
        };
        let addresses = match &given {
            None => {
                let asked = &self.config.runtime.ips;
                let asked = if asked.is_empty() {
                    &self.args.ips
                } else {
                    asked
                };
                store.reserve(&self.config.pools, &record, asked)?.addresses
            }
            Some(given) => {
                let ips: Vec<IpAddr> = given.ips.iter().map(|ip| ip.address.ip()).collect();
                store.claim(&record, &ips)?.addresses
            }
        };
        undo.push(format!("release {addresses:?}"), move || {
            Ok(store.release(&record.key).map(drop)?)
        });
        Ok(given.unwrap_or_else(|| CniResult::of_addresses(&addresses)))
    }
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
        Socket::visit(netns.as_fd()).map_err(netlink("open a netlink socket in the pod"))?;
    match pod.link_by_name(&args.ifname) {
        Ok(_) => Err(Error::AlreadyAttached {
            container_id: args.container_id.clone(),
            ifname: args.ifname.clone(),
        }),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(netlink("look at existing interfaces")(error)),
    }
}

/// The same where this call names another namespace than the first did, which
/// lives, and has its interface.
fn refuse_live_elsewhere(args: &Args, before: &[(IpAddr, Option<Record>)]) -> Result<(), Error> {
    let records = before.iter().filter_map(|(_, record)| record.as_ref());
    for record in records {
        let Ok(netns) = Netns::open(Path::new(&record.netns)) else {
            continue;
        };
        if (netns.id().device, netns.id().inode) == record.netns_id {
            refuse_live(args, &netns)?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_34_an_add_that_nobody_waits_for_any_more_is_a_failed_one() {
        assert!(in_time(Duration::from_secs(119)).is_ok());
        let error = in_time(Duration::from_secs(121)).unwrap_err();
        assert_eq!(error.code(), 11);
        assert!(error.to_string().contains("121 s"), "{error}");
    }
}
