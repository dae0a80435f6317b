//! The chains of one Service port.

use std::time::Duration;

use seaway_proxy_core::desired::{
    Endpoint, Frontend, FrontendKind, LocalSources, Protocol, ServicePort, ServicePortName,
    TrafficPolicy,
};

use super::Half;
use super::words::{comment, from_network, frontend_match, hash, lower, one_in, reject};
use crate::rendered::{
    ENDPOINT_PREFIX, EXTERNAL_PREFIX, INTERNAL_PREFIX, LOCAL_PREFIX, MARK_OUTSIDE, RANGES_PREFIX,
    SERVICE_PREFIX,
};
use crate::sets;
use crate::tree::Key;

/// One Service port on its way into the tables.
struct Writer<'h, 'a> {
    half: &'h mut Half<'a>,
    name: &'a ServicePortName,
    port: &'a ServicePort,
    hash: String,
    transport: Protocol,
    protocol: &'static str,
    /// How long clients are remembered, if they are.
    affinity: Option<Duration>,
}

/// Writes a Service port's chains and the way to them.
pub(super) fn push<'a>(half: &mut Half<'a>, name: &'a ServicePortName, port: &'a ServicePort) {
    let Some(first) = port.frontends.first() else {
        return;
    };
    let hash = hash(name, first.protocol);
    let protocol = lower(first.protocol);
    let affinity = half.room.take(port);
    let mut writer: Writer<'_, 'a> = Writer {
        half,
        name,
        port,
        hash,
        transport: first.protocol,
        protocol,
        affinity,
    };
    writer.push();
}

impl Writer<'_, '_> {
    fn push(&mut self) {
        for frontend in &self.port.frontends {
            if let Some(chain) = self.translation(frontend) {
                let leads = frontend_match(frontend, &self.name.to_string());
                self.half.translate(frontend, format!("{leads} -g {chain}"));
            }
            if let Some(rule) = self.refusal(frontend) {
                self.half.refuse(frontend, rule);
            }
        }
        self.half.own_clients.extend(self.port.own_clients());
    }

    fn has_external(&self) -> bool {
        let kinds = self.port.frontends.iter().map(|frontend| frontend.kind);
        kinds
            .into_iter()
            .any(|kind| kind != FrontendKind::ClusterIp)
    }

    /// The policy for a kind of frontend.
    fn policy(&self, kind: FrontendKind) -> TrafficPolicy {
        match kind {
            FrontendKind::ClusterIp => self.port.internal,
            _ => self.port.external,
        }
    }

    fn endpoints(&self, policy: TrafficPolicy) -> &[Endpoint] {
        match policy {
            TrafficPolicy::Cluster => &self.port.cluster,
            TrafficPolicy::Local => &self.port.local,
        }
    }

    /// The nat chain that a frontend leads to; none if nobody is served.
    fn translation(&mut self, frontend: &Frontend) -> Option<String> {
        if self.port.cluster.is_empty() {
            return None;
        }
        match frontend.kind {
            FrontendKind::ClusterIp => self.internal(),
            FrontendKind::LoadBalancer => Some(self.ranges()),
            FrontendKind::ExternalIp | FrontendKind::NodePort => Some(self.external()),
        }
    }

    /// What is left to filter, if anything: it sees what nat did not translate.
    fn refusal(&mut self, frontend: &Frontend) -> Option<String> {
        let balanced = frontend.kind == FrontendKind::LoadBalancer;
        let restricted = balanced && self.port.source_ranges.is_some();
        let name = self.name;
        let reject = reject(self.half.family);
        if self.port.cluster.is_empty() {
            let leads = frontend_match(frontend, &format!("{name} has no endpoints"));
            if restricted {
                return Some(format!("{leads} -g {}", self.refused_ranges(reject)));
            }
            return Some(format!("{leads} {reject}"));
        }
        let note = if self.endpoints(self.policy(frontend.kind)).is_empty() {
            format!("{name} has no endpoint on this node")
        } else if restricted {
            format!("{name} is not for this source")
        } else {
            return None;
        };
        Some(format!("{} -j DROP", frontend_match(frontend, &note)))
    }

    /// Without endpoints: who may use the Service is refused, who may not gets
    /// no answer.
    fn refused_ranges(&mut self, reject: &str) -> String {
        let chain = format!("{RANGES_PREFIX}{}", self.hash);
        if !self.half.tables.filter.chains.contains_key(&chain) {
            for range in self.port.source_ranges.iter().flatten() {
                let from = from_network(range);
                let filter = &mut self.half.tables.filter;
                filter.push(&chain, format_args!("{from}{reject}"));
            }
            let note = comment(&format!("{} is not for this source", self.name));
            let filter = &mut self.half.tables.filter;
            filter.push(&chain, format_args!("{note} -j DROP"));
        }
        chain
    }

    /// Load balancer IPs: who is not in a range is not translated, and dropped
    /// by filter.
    fn ranges(&mut self) -> String {
        let external = self.external();
        let Some(ranges) = &self.port.source_ranges else {
            return external;
        };
        let chain = format!("{RANGES_PREFIX}{}", self.hash);
        let nat = &mut self.half.tables.nat;
        if !nat.chains.contains_key(&chain) {
            nat.add_chain(&chain);
            for range in ranges {
                let from = from_network(range);
                nat.push(&chain, format_args!("{from}-g {external}"));
            }
            // Nor is he to come to a NodePort of the same number; filter drops him.
            nat.push(&chain, format_args!("-j ACCEPT"));
        }
        chain
    }

    /// Cluster IPs: the endpoints' chain, behind one that marks if others share it.
    fn internal(&mut self) -> Option<String> {
        let policy = self.port.internal;
        if self.endpoints(policy).is_empty() {
            return None;
        }
        let mark = if self.half.state.masquerade_all {
            self.half.mark()
        } else if self.half.state.local_sources == LocalSources::Unknown {
            return Some(self.set(policy, None));
        } else {
            format!("-j {MARK_OUTSIDE}")
        };
        if !self.has_external() {
            return Some(self.set(policy, Some(&mark)));
        }
        let set = self.set(policy, None);
        let chain = format!("{INTERNAL_PREFIX}{}", self.hash);
        let nat = &mut self.half.tables.nat;
        if !nat.chains.contains_key(&chain) {
            nat.push(&chain, format_args!("{mark}"));
            nat.push(&chain, format_args!("-g {set}"));
        }
        Some(chain)
    }

    /// All other addresses.
    fn external(&mut self) -> String {
        let chain = format!("{EXTERNAL_PREFIX}{}", self.hash);
        if self.half.tables.nat.chains.contains_key(&chain) {
            return chain;
        }
        let cluster = self.set(TrafficPolicy::Cluster, None);
        let mark = self.half.mark();
        let rules = match self.port.external {
            TrafficPolicy::Cluster => vec![mark, format!("-g {cluster}")],
            TrafficPolicy::Local => {
                let pods = self.half.pods().into_iter();
                let mut rules: Vec<_> = pods.map(|pod| format!("{pod}-g {cluster}")).collect();
                let own = "-m addrtype --src-type LOCAL";
                rules.push(format!("{own} {mark}"));
                rules.push(format!("{own} -g {cluster}"));
                if !self.port.local.is_empty() {
                    rules.push(format!("-g {}", self.set(TrafficPolicy::Local, None)));
                }
                rules
            }
        };
        for rule in rules {
            self.half.tables.nat.push(&chain, format_args!("{rule}"));
        }
        chain
    }

    /// The chain that picks an endpoint of a set: each with the same probability.
    fn set(&mut self, policy: TrafficPolicy, first: Option<&str>) -> String {
        let prefix = match policy {
            TrafficPolicy::Cluster => SERVICE_PREFIX,
            TrafficPolicy::Local => LOCAL_PREFIX,
        };
        let chain = format!("{prefix}{}", self.hash);
        if self.half.tables.nat.chains.contains_key(&chain) {
            return chain;
        }
        let port = self.port;
        let endpoints = match policy {
            TrafficPolicy::Cluster => &port.cluster,
            TrafficPolicy::Local => &port.local,
        };
        if let Some(first) = first {
            self.half.tables.nat.push(&chain, format_args!("{first}"));
        }
        let note = comment(&self.name.to_string());
        let targets = self.targets(endpoints);
        let nat = &mut self.half.tables.nat;
        for Target { set, leads } in &targets {
            if let Some(set) = set {
                nat.push(&chain, format_args!("-m set --match-set {set} src {leads}"));
            }
        }
        let protocol = self.protocol;
        for (index, Target { set, leads }) in targets.iter().enumerate() {
            let condition = match targets.len() - index {
                // The chain is entered by goto: whoever lists it alone still sees whose it is.
                1 => note.clone(),
                left => format!("-m statistic --mode random --probability {}", one_in(left)),
            };
            match set {
                Some(_) => nat.push(&chain, format_args!("{condition} {leads}")),
                None => nat.push(&chain, format_args!("-p {protocol} {condition} {leads}")),
            }
        }
        chain
    }

    /// What leads to each endpoint: translation itself, or with affinity the
    /// chain that remembers the client first.
    fn targets(&mut self, endpoints: &[Endpoint]) -> Vec<Target> {
        let targets = endpoints.iter().map(|Endpoint { addr, .. }| {
            let translate = format!("-j DNAT --to-destination {addr}");
            let Some(timeout) = self.affinity else {
                return Target {
                    set: None,
                    leads: translate,
                };
            };
            let half = &mut *self.half;
            let set = sets::name(half.family, self.name, self.transport, *addr, timeout);
            let unique = set.rsplit('-').next().unwrap_or_default();
            let chain = format!("{ENDPOINT_PREFIX}{unique}");
            let nat = &mut half.tables.nat;
            if !nat.chains.contains_key(&chain) {
                let note = comment(&self.name.to_string());
                let protocol = self.protocol;
                nat.push(&chain, format_args!("-j SET --add-set {set} src --exist"));
                nat.push(&chain, format_args!("-p {protocol} {note} {translate}"));
                half.tables.sets.insert(set.clone(), timeout.as_secs());
            }
            Target {
                set: Some(set),
                leads: format!("-g {chain}"),
            }
        });
        targets.collect()
    }
}

/// An endpoint as the chains see it.
struct Target {
    /// The clients that come back to it.
    set: Option<String>,
    /// The end of a rule.
    leads: String,
}

impl Half<'_> {
    fn translate(&mut self, frontend: &Frontend, rule: String) {
        let entry = (Key::frontend(frontend), rule);
        match frontend.kind {
            FrontendKind::NodePort => self.nat_ports.push(entry),
            _ => self.nat_addresses.push(entry),
        }
    }

    fn refuse(&mut self, frontend: &Frontend, rule: String) {
        let entry = (Key::frontend(frontend), rule);
        match frontend.kind {
            FrontendKind::NodePort => self.filter_ports.push(entry),
            _ => self.filter_addresses.push(entry),
        }
    }
}
