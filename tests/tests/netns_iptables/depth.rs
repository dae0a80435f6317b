//! Addresses so near each other that a tree over them would be deeper than nf_tables takes.

use std::net::Ipv6Addr;
use std::time::Duration;

use seaway_proxy_core::backend::Backend as _;
use seaway_proxy_core::desired::{
    Endpoint, Frontend, FrontendKind, Protocol, ServicePort, ServicePortName,
};
use seaway_proxy_core::explain::kernel::Subject;
use seaway_testbed::peer;

use crate::dual::{self, VIP_V6};
use crate::node::{each_flavour, web};

/// Twelve digits of it are each another one in one address beside it.
const NEAR: u128 = 0x2001_0db8_0000_0000_0000_1111_1111_1111;
const DEEPEST: &str = "[2001:db8::1111:1111:1111]:80";
/// The first pod.
const ENDPOINT: &str = "[fd00:a:f4::2]:8080";

/// A port of a Service at all of these addresses. Its rules are as long a way as a Service port's
/// can be: source ranges, what masquerades, the choice, and the memory of it.
fn deep(port: u16) -> (ServicePortName, ServicePort) {
    let near = (0..12).map(|digit| NEAR ^ (3_u128 << (4 * digit)));
    let frontend = |addr: u128| Frontend {
        addr: Ipv6Addr::from(addr).into(),
        port,
        protocol: Protocol::Tcp,
        kind: FrontendKind::LoadBalancer,
    };
    let mut frontends: Vec<Frontend> = near.chain([NEAR]).map(frontend).collect();
    frontends.sort_unstable();
    let endpoint = Endpoint {
        addr: ENDPOINT.parse().unwrap(),
        local: true,
    };
    let service = ServicePort {
        frontends,
        cluster: vec![endpoint],
        source_ranges: Some(vec!["fd00::/16".parse().unwrap()]),
        affinity: Some(Duration::from_hours(3)),
        ..ServicePort::default()
    };
    let name = ServicePortName {
        namespace: "default".to_owned(),
        name: "deep".to_owned(),
        port: format!("p{port}"),
    };
    (name, service)
}

#[test]
fn near_addresses_of_a_service_with_many_ports_keep_nobody_from_being_served() {
    each_flavour(|flavour| {
        let (mut n, _servers) = dual::node(flavour);
        let _server = n.pods[0].serve(peer::Protocol::Tcp, ENDPOINT, "pod0");
        let mut desired = dual::both(web(2));
        desired.v6.services.extend((80..=96).map(deep));
        assert!(n.sync(&desired));
        assert!(!n.sync(&desired), "what is there is known again");
        let answer = n.client.ask(peer::Protocol::Tcp, DEEPEST).unwrap();
        assert_eq!(answer.name, "pod0");
        n.client.ask(peer::Protocol::Udp, VIP_V6).unwrap();

        let (have, want) = (n.read_in_full(), n.backend.render(&desired));
        let subject = Subject {
            target: DEEPEST.parse().unwrap(),
            endpoints: vec![ENDPOINT.parse().unwrap()],
        };
        let found = n.backend.inspect(&have, &want, &subject);
        assert_eq!(found.differences, []);
        let all = found.holds.join("\n");
        for part in ["-d 2001:db8::1111:1111:1111/128", ENDPOINT] {
            assert!(all.contains(part), "{part} is not in {all}");
        }
    });
}
