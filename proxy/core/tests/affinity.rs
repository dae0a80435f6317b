//! The interpreter on clients that come back, of Services with `sessionAffinity`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use seaway_proxy_core::desired::{DesiredState, Family, Protocol};
use seaway_proxy_core::flows::{Client, Flow, Given, endpoint};
use seaway_proxy_core::interpret::{Memory, Outcome};

const CLUSTER_IP: &str = "172.30.0.41:80";
const NODE_PORT: &str = "192.168.0.2:30001";
const VIP: &str = "1.2.3.4:80";
const PLAIN: &str = "{}";
const STICKY: &str = r#"{"sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 125}}}"#;
const STICKY_LOCAL: &str = r#"{"sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local"}"#;
const STICKY_BOTH: &str = r#"{"sessionAffinity": "ClientIP", "ports": [
    {"name": "http", "port": 80, "nodePort": 30001},
    {"name": "udp", "port": 80, "protocol": "UDP", "nodePort": 30001}]}"#;
const THREE: &str = "h1 h2 t1";

/// A Service whose clients are remembered, as time goes by.
struct Story {
    family: Family,
    given: Given,
    desired: DesiredState,
    memory: Memory,
    now: Duration,
}

/// In either family.
fn story(spec: &'static str, endpoints: &'static str, tell: impl Fn(&mut Story)) {
    for family in Family::ALL {
        let given = Given {
            spec,
            endpoints,
            node: |_| {},
        };
        tell(&mut Story {
            family,
            given,
            desired: given.compiled(family).desired,
            memory: Memory::default(),
            now: Duration::ZERO,
        });
    }
}

impl Story {
    fn given(&mut self, spec: &'static str, endpoints: &'static str) {
        self.given.spec = spec;
        self.given.endpoints = endpoints;
        self.desired = self.given.compiled(self.family).desired;
        self.memory.follow(&self.desired);
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn flow(&self, protocol: Protocol, from: Client, to: &'static str) -> Flow {
        Flow {
            cases: &[],
            family: self.family,
            given: self.given,
            from,
            to,
            protocol,
            expect: "",
        }
    }

    /// Who may answer, by name.
    fn by(&self, protocol: Protocol, from: Client, to: &'static str) -> String {
        let flow = self.flow(protocol, from, to);
        let (own, packet) = (flow.node_addresses(), flow.packet());
        let outcome = self
            .memory
            .interpret(&self.desired, &own, &packet, self.now);
        let Outcome::Answered(by) = outcome else {
            return format!("{outcome:?}");
        };
        let names = THREE.split(' ');
        let may = names.filter(|name| by.contains_key(&endpoint(name, self.family)));
        may.collect::<Vec<_>>().join(" ")
    }

    fn may(&self, from: Client, to: &'static str) -> String {
        self.by(Protocol::Tcp, from, to)
    }

    fn meets_by(&mut self, protocol: Protocol, from: Client, to: &'static str, name: &str) {
        let may = self.by(protocol, from, to);
        assert!(may.split(' ').any(|one| one == name), "{name} of {may}");
        let flow = self.flow(protocol, from, to);
        let (own, packet) = (flow.node_addresses(), flow.packet());
        let addr = endpoint(name, self.family);
        self.memory
            .met(&self.desired, &own, &packet, addr, self.now);
    }

    fn meets(&mut self, from: Client, to: &'static str, name: &str) {
        self.meets_by(Protocol::Tcp, from, to, name);
    }
}

/// Cases 180 to 183.
#[test]
fn a_client_comes_back_until_its_time_is_over() {
    story(STICKY, THREE, |s| {
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
        s.meets(Client::Pod, CLUSTER_IP, "h2");
        for _ in 0..15 {
            assert_eq!(s.may(Client::Pod, CLUSTER_IP), "h2");
            s.meets(Client::Pod, CLUSTER_IP, "h2");
        }
        assert_eq!(s.may(Client::Node, CLUSTER_IP), THREE, "another client");
        // Each connection begins the time anew.
        for _ in 0..10 {
            s.pass(124);
            assert_eq!(s.may(Client::Pod, CLUSTER_IP), "h2");
            s.meets(Client::Pod, CLUSTER_IP, "h2");
        }
        s.pass(125);
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
    });
}

/// Case 184.
#[test]
fn a_client_whose_endpoint_goes_moves_and_stays_there() {
    story(STICKY, THREE, |s| {
        s.meets(Client::Pod, CLUSTER_IP, "h2");
        s.given(STICKY, "h1 h2:unready t1");
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), "h1 t1");
        s.meets(Client::Pod, CLUSTER_IP, "t1");
        s.given(STICKY, THREE);
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), "t1");
        s.given(STICKY, "");
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), "Refused");
    });
}

/// Case 185.
#[test]
fn a_client_meets_the_same_one_at_every_address_where_it_may_answer() {
    story(STICKY, THREE, |s| {
        s.meets(Client::Outside, CLUSTER_IP, "t1");
        for to in [NODE_PORT, VIP] {
            assert_eq!(s.may(Client::Outside, to), "t1");
        }
    });
    story(STICKY_LOCAL, THREE, |s| {
        s.meets(Client::Outside, CLUSTER_IP, "t1");
        assert_eq!(s.may(Client::Outside, NODE_PORT), "h1 h2");
        s.meets(Client::Outside, NODE_PORT, "h1");
        assert_eq!(s.may(Client::Outside, VIP), "h1");
        assert_eq!(s.may(Client::Outside, CLUSTER_IP), "h1 t1");
    });
}

/// Cases 186 and 189: a source port is nothing that anybody looks at.
#[test]
fn each_port_of_a_service_remembers_for_itself() {
    story(STICKY_BOTH, THREE, |s| {
        s.meets(Client::Pod, CLUSTER_IP, "h1");
        assert_eq!(s.by(Protocol::Udp, Client::Pod, CLUSTER_IP), THREE);
        s.meets_by(Protocol::Udp, Client::Pod, CLUSTER_IP, "t1");
        assert_eq!(s.by(Protocol::Udp, Client::Pod, CLUSTER_IP), "t1");
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), "h1");
    });
}

/// Case 187, and another timeout.
#[test]
fn affinity_that_is_switched_knows_nothing_of_before() {
    story(PLAIN, THREE, |s| {
        s.meets(Client::Pod, CLUSTER_IP, "h2");
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
        s.given(STICKY, THREE);
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
        s.meets(Client::Pod, CLUSTER_IP, "h2");
        assert_eq!(s.may(Client::Pod, CLUSTER_IP), "h2");
        for other in [PLAIN, STICKY_LOCAL] {
            s.given(other, THREE);
            assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
            s.given(STICKY, THREE);
            assert_eq!(s.may(Client::Pod, CLUSTER_IP), THREE);
            s.meets(Client::Pod, CLUSTER_IP, "h2");
        }
    });
}

/// Case 188.
#[test]
fn a_client_outside_comes_back_among_this_nodes_endpoints() {
    story(STICKY_LOCAL, THREE, |s| {
        assert_eq!(s.may(Client::Outside, VIP), "h1 h2");
        s.meets(Client::Outside, VIP, "h2");
        assert_eq!(s.may(Client::Outside, VIP), "h2");
        assert_eq!(s.may(Client::Blocked, VIP), "h1 h2", "another client");
    });
}
