//! `sweep`: what dead pods have left goes, though nobody calls DEL for it.
//!
//! Container runtimes forget sandboxes, and containerd never calls `GC`. So
//! records, interfaces and namespaces are compared here. One look is not
//! enough: whatever goes has been seen so twice, with some time in between,
//! and is looked at once more while nobody else can work on it.
//!
//! ```text
//! record   namespace gone  and  no interface, or one to a dying namespace   released
//! link     no record       and  it cannot carry a packet                    removed
//! link     no record, but alive                                             told
//! hostPort no record of its pod  and  no route to a live interface          closed
//! ```

mod give_back;
mod networks;
mod observed;
mod ports;
mod report;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use seaway_netlink::{Link, Netns, Socket};

use self::give_back::Waits;
pub(crate) use self::give_back::give_back;
use self::networks::networks;
use self::observed::{Observations, Thing};
pub(crate) use self::ports::{forget_routed, orphans};
use self::report::{Released, Swept};
pub(crate) use self::verdict::Veth;
use self::verdict::{Namespace, is_left_behind};
use crate::attach::netlink;
use crate::del::release_busy;
use crate::error::Error;
use crate::hostports;
use crate::ipam::{Key, Record, Store};
use crate::plan::{Identity, group, is_host_ifname};
use crate::upkeep::{Options, told};

/// Without a conf there is nobody to ask who that plugin is.
const UNTOLD: &str = "its record cannot be read; another IPAM plugin, if there is one, is not told";

/// The veths of the host, by name.
pub(crate) struct Veths(BTreeMap<String, Link>);

impl Veths {
    pub(crate) fn look(host: &mut Socket) -> Result<Self, Error> {
        let links = host.links().map_err(netlink("list the interfaces"))?;
        let veths = links.into_iter();
        let veths = veths.filter(|link| link.kind.as_deref() == Some("veth"));
        Ok(Self(veths.map(|link| (link.name.clone(), link)).collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<Veth> {
        self.link(name).map(Veth::of)
    }

    pub(crate) fn link(&self, name: &str) -> Option<&Link> {
        self.0.get(name)
    }
}

/// Sweeps one network, or all that have records. Goes on after failures, which are in the
/// report.
pub(crate) fn sweep(options: &Options) -> Result<Swept, Error> {
    let mut waits = Waits::new();
    if let Some(network) = &options.network {
        return sweep_one(options, network, &mut waits);
    }
    let mut report = Swept::default();
    for network in networks(&options.data_dir)? {
        waits.next_network();
        match sweep_one(options, &network, &mut waits) {
            Ok(swept) => report.add(swept),
            Err(error) => {
                let text = format!("sweep network {network}: {}", told(&error));
                report.failures.push(text);
            }
        }
    }
    Ok(report)
}

fn sweep_one(options: &Options, network: &str, waits: &mut Waits) -> Result<Swept, Error> {
    let store = Store::open(&options.data_dir, network)?;
    let mut report = Swept::default();
    if !store.exists() {
        return Ok(report);
    }
    match store.purge_other_boots() {
        Ok(purged) => report.purged_boots = purged,
        Err(error) => report.failures.push(told(&error.into())),
    }
    let mut host = Socket::open().map_err(netlink("open a netlink socket"))?;
    // Interfaces first: a record is there before its interface, so one that is
    // being added cannot look as if it had none.
    let veths = Veths::look(&mut host)?;
    let records = store.attachments()?;
    let before = Observations::read(&store);
    let mut sweep = Sweep {
        store: &store,
        host,
        now: before.begin(options.apart)?,
        before,
        report,
        waits,
    };
    for (key, contents) in &records {
        sweep.record(key, contents, &veths);
    }
    let recorded: Vec<String> = records.keys().map(host_ifname).collect();
    let ours = veths.0.values().filter(|link| {
        link.group == group(network) && is_host_ifname(&link.name) && !recorded.contains(&link.name)
    });
    for link in ours {
        sweep.link(link);
    }
    if let Err(error) = sweep.ports() {
        sweep.report.failures.push(told(&error));
    }
    sweep.finish()
}

struct Sweep<'a> {
    store: &'a Store,
    host: Socket,
    before: Observations,
    now: Observations,
    report: Swept,
    waits: &'a mut Waits,
}

impl Sweep<'_> {
    fn record(&mut self, key: &Key, contents: &[(IpAddr, Option<Record>)], veths: &Veths) {
        let veth = veths.get(&host_ifname(key));
        let record = contents.iter().find_map(|(_, record)| record.as_ref());
        if !is_left_behind(veth, namespace(record)) {
            return;
        }
        let thing = Thing::record(key, record);
        if !self.now.ripe(&self.before, &thing) {
            return;
        }
        match self.release(key) {
            Ok(Some(mut addresses)) => {
                let key = key.clone();
                self.now.forget(&thing);
                // They come in the order of the folder, which is none.
                addresses.sort_unstable();
                self.report.released.push(Released { key, addresses });
            }
            // Somebody is working on it, or has just done so.
            Ok(None) => {}
            Err(error) => {
                let container_id = &key.container_id;
                let text = format!("release container {container_id}: {}", told(&error));
                self.report.failures.push(text);
            }
        }
    }

    /// Looks once more with other calls kept away, and releases.
    fn release(&mut self, key: &Key) -> Result<Option<Vec<IpAddr>>, Error> {
        let busy = self.store.busy_ones([key])?;
        if !busy.contains(key) {
            return Ok(None);
        }
        let contents = self.store.contents(key)?;
        let record = contents.iter().find_map(|(_, record)| record.as_ref());
        let veth = match self.host.link_by_name(&host_ifname(key)) {
            Ok(link) => Some(Veth::of(&link)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(netlink("look at existing interfaces")(error)),
        };
        if contents.is_empty() || !is_left_behind(veth, namespace(record)) {
            return Ok(None);
        }
        let skipped = &mut self.report.skipped;
        let waits = &mut *self.waits;
        release_busy(self.store, key, || {
            let Some(record) = record else {
                skipped.push(format!("container {}: {UNTOLD}", key.container_id));
                return Ok(());
            };
            waits.give_back(key, record)
        })?;
        drop(busy);
        Ok(Some(contents.iter().map(|(address, _)| *address).collect()))
    }

    fn link(&mut self, link: &Link) {
        if Veth::of(link).is_alive() {
            self.report.alive_without_record.push(link.name.clone());
            return;
        }
        let thing = Thing::link(link);
        if !self.now.ripe(&self.before, &thing) {
            return;
        }
        match self.remove(link) {
            Ok(true) => {
                self.now.forget(&thing);
                self.report.removed_links.push(link.name.clone());
            }
            Ok(false) => {}
            Err(error) => {
                let text = format!("remove {}: {}", link.name, told(&error));
                self.report.failures.push(text);
            }
        }
    }

    /// An ADD needs a record before it makes an interface, so none can while
    /// the records are kept still.
    fn remove(&mut self, link: &Link) -> Result<bool, Error> {
        let host = &mut self.host;
        self.store.quiet(|keys| {
            if keys.iter().any(|key| host_ifname(key) == link.name) {
                return Ok(false);
            }
            match host.link_by_name(&link.name) {
                Ok(now) if now.index == link.index && !Veth::of(&now).is_alive() => host
                    .remove_link(&link.name)
                    .map_err(netlink("delete a stale interface")),
                Ok(_) => Ok(false),
                Err(error) if error.is_not_found() => Ok(false),
                Err(error) => Err(netlink("look at existing interfaces")(error)),
            }
        })?
    }

    /// Ports that lead to nobody. No address can be given while the records are
    /// kept still.
    fn ports(&mut self) -> Result<(), Error> {
        for pod in orphans(self.store, &mut self.host)? {
            let thing = Thing::Ports { pod };
            if !self.now.ripe(&self.before, &thing) {
                continue;
            }
            let is_free = |held: &BTreeSet<IpAddr>| !held.contains(&pod);
            let closed = self.store.quiet_addresses(|held| {
                is_free(held).then(|| hostports::remove(&[pod])).transpose()
            })??;
            if closed.is_some() {
                self.now.forget(&thing);
                self.report.closed_host_ports.push(pod);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Swept, Error> {
        self.report.waiting = self.now.len();
        self.now.write(self.store)?;
        Ok(self.report)
    }
}

/// What has become of the namespace of a record; one that cannot be read does
/// not know.
fn namespace(record: Option<&Record>) -> Namespace {
    let Some(record) = record else {
        return Namespace::Gone;
    };
    match Netns::open(Path::new(&record.netns)) {
        Ok(netns) if (netns.id().device, netns.id().inode) == record.netns_id => Namespace::There,
        Ok(_) => Namespace::Gone,
        Err(error) => Namespace::unopened(&error),
    }
}

fn host_ifname(key: &Key) -> String {
    Identity::of(&key.container_id, &key.ifname).host_ifname
}
