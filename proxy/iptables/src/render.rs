//! From the desired state of a family to rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use seaway_proxy_core::desired::{Family, FamilyState, LocalSources, Protocol};

use crate::config::Config;
use crate::lacking::{Lacking, Module};
use crate::rendered::{
    ADDRESSES, FORWARD, HAIRPIN, HAIRPIN_PREFIX, HEALTH, HEALTH_PREFIX, INVALID, LOCALHOST,
    MARK_OUTSIDE, MASQUERADE, NET_PREFIX, NODE_PORTS, PORT_PREFIX, PORTS, POSTROUTING, SERVICES,
    Table, Tables,
};
use crate::sets::Room;
use crate::tree::{self, Entry, Key};

mod service;
mod words;

use words::{comment, from_network, loopback, to_network};

/// All of our rules in one family.
///
/// `ipset` is whether the node has it, `lacking` what its kernel has not. What is in `have`
/// just so is not put in words.
pub(crate) fn render(
    config: &Config,
    ipset: bool,
    lacking: &Lacking,
    family: Family,
    state: &FamilyState,
    have: Option<&Tables>,
) -> Tables {
    let mut half = Half {
        config,
        room: Room::new(ipset && !lacking.includes(Module::Sets)),
        family,
        state,
        tables: Tables::default(),
        nat_addresses: Vec::new(),
        nat_ports: Vec::new(),
        filter_addresses: Vec::new(),
        filter_ports: Vec::new(),
        own_clients: BTreeSet::new(),
    };
    let mut done = Tables::default();
    let services = state.services.iter();
    for (name, port) in services.filter(|(_, port)| lacking.needed_by(port).is_none()) {
        service::push(&mut half, name, port);
        done.absorb(std::mem::take(&mut half.tables), have);
    }
    half.push_entries();
    half.push_marks();
    half.push_postrouting();
    half.push_invalid();
    half.push_forward();
    half.push_health();
    half.push_localhost();
    half.push_jumps();
    done.absorb(half.tables, have);
    done
}

/// The rules of a family while they are made.
struct Half<'a> {
    config: &'a Config,
    /// For session affinity.
    room: Room,
    family: Family,
    state: &'a FamilyState,
    /// Of one Service port, then of what is for all of them.
    tables: Tables,
    nat_addresses: Vec<Entry>,
    nat_ports: Vec<Entry>,
    filter_addresses: Vec<Entry>,
    filter_ports: Vec<Entry>,
    /// Addresses of endpoints that may run here.
    own_clients: BTreeSet<IpAddr>,
}

impl Half<'_> {
    /// The rule that asks for masquerade; other bits of the mark are others'.
    fn mark(&self) -> String {
        let mark = self.config.masquerade_mark;
        format!("-j MARK --set-xmark {mark:#x}/{mark:#x}")
    }

    /// Conditions that pods fulfil, each with a space behind it.
    fn pods(&self) -> Vec<String> {
        match &self.state.local_sources {
            LocalSources::Unknown => Vec::new(),
            LocalSources::Networks(networks) => networks.iter().map(from_network).collect(),
            LocalSources::Interface(name) => vec![format!("-i {name} ")],
            LocalSources::InterfacePrefix(prefix) => vec![format!("-i {prefix}+ ")],
        }
    }

    /// From the entry chains to Service ports, in both tables.
    fn push_entries(&mut self) {
        let Self {
            tables: Tables { nat, filter, .. },
            ..
        } = self;
        let trees = [
            (nat, &mut self.nat_addresses, &mut self.nat_ports),
            (filter, &mut self.filter_addresses, &mut self.filter_ports),
        ];
        for (table, addresses, ports) in trees {
            table.push(SERVICES, format_args!("-j {ADDRESSES}"));
            tree::build(table, ADDRESSES, NET_PREFIX, std::mem::take(addresses));
            if !ports.is_empty() {
                let local = "-m addrtype --dst-type LOCAL";
                table.push(SERVICES, format_args!("{local} -j {NODE_PORTS}"));
                push_node_ports(table, self.family, self.state);
                tree::build(table, PORTS, PORT_PREFIX, std::mem::take(ports));
            }
        }
    }

    fn push_marks(&mut self) {
        if self.state.local_sources == LocalSources::Unknown {
            return;
        }
        let (pods, mark) = (self.pods(), self.mark());
        let nat = &mut self.tables.nat;
        for pod in pods {
            nat.push(MARK_OUTSIDE, format_args!("{pod}-j RETURN"));
        }
        nat.push(MARK_OUTSIDE, format_args!("{mark}"));
    }

    /// What has been translated and must come back the same way.
    fn push_postrouting(&mut self) {
        let mark = self.config.masquerade_mark;
        let nat = &mut self.tables.nat;
        let on_mark = format_args!("-m mark --mark {mark:#x}/{mark:#x} -j {MASQUERADE}");
        nat.push(POSTROUTING, on_mark);
        // The mark is taken off, lest an encapsulated packet be masqueraded again.
        nat.push(
            MASQUERADE,
            format_args!("-j MARK --set-xmark {mark:#x}/0x0"),
        );
        nat.push(MASQUERADE, format_args!("-j MASQUERADE --random-fully"));
        // An endpoint that was chosen to answer itself would see its own address as
        // the source and drop the packet.
        let translated = "-m conntrack --ctstate DNAT";
        nat.push(POSTROUTING, format_args!("{translated} -j {HAIRPIN}"));
        let hairpin = |addr: &IpAddr| {
            let host = (*addr).into();
            let (from, to) = (from_network(&host), to_network(&host));
            let rule = format!("{from}{to}-j MASQUERADE --random-fully");
            (Key::addr(*addr), rule)
        };
        let entries = self.own_clients.iter().map(hairpin).collect();
        tree::build(nat, HAIRPIN, HAIRPIN_PREFIX, entries);
    }

    /// The packets that would come out of a Service's connection untranslated, and
    /// be answered with a reset. The client may be somebody else, or this node: as
    /// itself, or as whom it masquerades.
    fn push_invalid(&mut self) {
        if !self.config.drop_invalid {
            return;
        }
        let invalid = "-m conntrack --ctstate INVALID -j DROP";
        let pods = self.pods();
        // Everything but pods may be routed asymmetrically for good reason.
        let forwarded = match &self.state.local_sources {
            LocalSources::Networks(_) => pods.clone(),
            _ => vec![String::new()],
        };
        let filter = &mut self.tables.filter;
        for source in forwarded {
            filter.push(FORWARD, format_args!("{source}{invalid}"));
        }
        // The node's own connections are not touched where pods cannot be told.
        for source in pods {
            filter.push(INVALID, format_args!("{source}-p tcp {invalid}"));
        }
    }

    /// What Services need under a FORWARD policy that drops.
    fn push_forward(&mut self) {
        let mark = self.config.masquerade_mark;
        let filter = &mut self.tables.filter;
        filter.push(
            FORWARD,
            format_args!("-m mark --mark {mark:#x}/{mark:#x} -j ACCEPT"),
        );
        // Two conditions: a list of states means any of them.
        let known = "-m conntrack --ctstate RELATED,ESTABLISHED -m conntrack --ctstate DNAT";
        filter.push(FORWARD, format_args!("{known} -j ACCEPT"));
    }

    fn push_health(&mut self) {
        if self.state.health_checks.is_empty() {
            return;
        }
        let entry = |(service, check): (&_, &seaway_proxy_core::desired::HealthCheck)| {
            let note = comment(&format!("{service} health check"));
            let rule = format!("-p tcp {note} -m tcp --dport {} -j ACCEPT", check.port);
            (Key::port(Protocol::Tcp, check.port), rule)
        };
        let mut entries: Vec<Entry> = self.state.health_checks.iter().map(entry).collect();
        // The API server gives a port to one Service; whoever is second has no listener.
        entries.sort_unstable();
        entries.dedup_by_key(|(key, _)| *key);
        tree::build(&mut self.tables.filter, HEALTH, HEALTH_PREFIX, entries);
    }

    /// With `route_localnet` the kernel lets strangers send to 127.0.0.0/8.
    fn push_localhost(&mut self) {
        if !self.state.node_ports.localhost {
            return;
        }
        let filter = &mut self.tables.filter;
        let martian = "! -s 127.0.0.0/8 -d 127.0.0.0/8";
        let unknown = "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT";
        filter.push(LOCALHOST, format_args!("{martian} {unknown} -j DROP"));
    }

    fn push_jumps(&mut self) {
        let note = comment("seaway services");
        let jump = |from: &str, condition: &str, to: &str| {
            (from.to_owned(), format!("{condition}{note} -j {to}"))
        };
        // Only new connections: an endpoint that has gone does not cut old ones.
        let new = "-m conntrack --ctstate NEW ";
        let Tables { nat, filter, .. } = &mut self.tables;
        filter.jumps = vec![
            jump("FORWARD", "", FORWARD),
            jump("FORWARD", new, SERVICES),
            jump("INPUT", new, SERVICES),
            jump("OUTPUT", new, SERVICES),
        ];
        for chain in [HEALTH, INVALID, LOCALHOST] {
            if filter.chains.contains_key(chain) {
                filter.jumps.push(jump("INPUT", "", chain));
            }
        }
        filter.jumps.sort_unstable();
        nat.jumps = vec![
            jump("OUTPUT", "", SERVICES),
            jump("POSTROUTING", "", POSTROUTING),
            jump("PREROUTING", "", SERVICES),
        ];
    }
}

/// Which of the node's own addresses go on to the tree of NodePorts.
fn push_node_ports(table: &mut Table, family: Family, state: &FamilyState) {
    let loopback = loopback(family);
    // What comes from the wire to a loopback address is nobody's, ever.
    let strangers = if state.node_ports.localhost {
        format!("! -s {loopback} ")
    } else {
        String::new()
    };
    table.push(
        NODE_PORTS,
        format_args!("{strangers}-d {loopback} -j RETURN"),
    );
    match &state.node_ports.networks {
        None => table.push(NODE_PORTS, format_args!("-g {PORTS}")),
        Some(networks) => {
            for network in networks {
                let to = to_network(network);
                table.push(NODE_PORTS, format_args!("{to}-g {PORTS}"));
            }
        }
    }
}
