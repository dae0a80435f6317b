//! Faults that compile could have, put into its result on purpose: the table of flows
//! has to notice each of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use seaway_proxy_core::desired::{
    DesiredState, Family, FamilyState, Frontend, FrontendKind, LocalSources, Protocol, ServicePort,
    TrafficPolicy,
};
use seaway_proxy_core::flows::{Flow, flows};
use seaway_proxy_core::interpret::interpret;

/// What goes wrong, and how the desired state of a row looks then.
type Fault = (&'static str, fn(&Flow, &mut FamilyState));

const FAULTS: [Fault; 20] = [
    ("externalTrafficPolicy is taken for Cluster", |_, half| {
        ports(half, |port| port.external = TrafficPolicy::Cluster);
    }),
    ("internalTrafficPolicy is taken for Cluster", |_, half| {
        ports(half, |port| port.internal = TrafficPolicy::Cluster);
    }),
    (
        "internalTrafficPolicy is taken for the external one",
        |_, half| {
            ports(half, |port| port.internal = port.external);
        },
    ),
    ("every endpoint counts as local", |_, half| {
        ports(half, |port| port.local = port.cluster.clone());
    }),
    ("no endpoint counts as local", |_, half| {
        ports(half, |port| port.local.clear());
    }),
    ("the last endpoint is left out", |_, half| {
        ports(half, |port| {
            port.cluster.truncate(port.cluster.len().saturating_sub(1));
        });
    }),
    ("nobody answers while all terminate", |flow, half| {
        let words = flow.given.endpoints.split_whitespace();
        let only_leaving = words.into_iter().all(|word| word.contains(':'));
        ports(half, |port| {
            if only_leaving {
                port.cluster.clear();
                port.local.clear();
            }
        });
    }),
    ("topology hints exclude nobody", |flow, half| {
        let all = flow.given.endpoints.contains("zones=");
        ports(half, |port| {
            if all && !port.local.is_empty() {
                port.cluster.extend(port.local.clone());
                port.cluster.sort_unstable();
                port.cluster.dedup();
            }
        });
    }),
    ("the endpoint's port is the Service's", |_, half| {
        ports(half, |port| {
            let number = port.frontends[0].port;
            port.cluster
                .iter_mut()
                .for_each(|e| e.addr.set_port(number));
        });
    }),
    ("source ranges are lost", |_, half| {
        ports(half, |port| port.source_ranges = None);
    }),
    (
        "source ranges without entries admit everybody",
        |_, half| {
            ports(half, |port| {
                if port.source_ranges.as_ref().is_some_and(|r| r.len() == 1) {
                    port.source_ranges = None;
                }
            });
        },
    ),
    ("load balancer IPs are taken for external IPs", |_, half| {
        frontends(half, |frontend| {
            if frontend.kind == FrontendKind::LoadBalancer {
                frontend.kind = FrontendKind::ExternalIp;
            }
        });
    }),
    ("external IPs are left out", |_, half| {
        ports(half, |port| {
            port.frontends
                .retain(|f| f.kind != FrontendKind::ExternalIp);
        });
    }),
    ("a NodePort is off by one", |_, half| {
        frontends(half, |frontend| {
            if frontend.kind == FrontendKind::NodePort {
                frontend.port += 1;
            }
        });
    }),
    ("UDP is taken for TCP", |_, half| {
        frontends(half, |f| become_tcp(f, Protocol::Udp));
    }),
    ("SCTP is taken for TCP", |_, half| {
        frontends(half, |f| become_tcp(f, Protocol::Sctp));
    }),
    ("NodePorts are served on every address", |_, half| {
        half.node_ports.networks = None;
    }),
    (
        "NodePorts are served on loopback though they are not to be",
        |_, half| {
            half.node_ports.localhost = true;
        },
    ),
    ("pods are not told from others", |_, half| {
        half.local_sources = LocalSources::Unknown;
    }),
    ("masquerade of all is forgotten", |_, half| {
        half.masquerade_all = false;
    }),
];

fn ports(half: &mut FamilyState, change: impl Fn(&mut ServicePort)) {
    half.services.values_mut().for_each(change);
}

fn frontends(half: &mut FamilyState, change: impl Fn(&mut Frontend)) {
    ports(half, |port| port.frontends.iter_mut().for_each(&change));
}

fn become_tcp(frontend: &mut Frontend, from: Protocol) {
    if frontend.protocol == from {
        frontend.protocol = Protocol::Tcp;
    }
}

/// Every row with the state that it comes to.
fn rows(family: Family) -> Vec<(Flow, DesiredState)> {
    let rows = flows().into_iter().map(|flow| Flow { family, ..flow });
    rows.map(|flow| (flow, flow.given.compiled(family).desired))
        .collect()
}

/// Cases of rows that end otherwise than they say.
fn noticed(rows: &[(Flow, DesiredState)], fault: fn(&Flow, &mut FamilyState)) -> Vec<u16> {
    let wrong = |(flow, desired): &&(Flow, DesiredState)| {
        let mut desired = desired.clone();
        fault(flow, desired.family_mut(flow.family));
        interpret(&desired, &flow.node_addresses(), &flow.packet()) != flow.expected()
    };
    let wrong = rows.iter().filter(wrong);
    wrong.flat_map(|(flow, _)| flow.cases).copied().collect()
}

#[test]
fn every_seeded_fault_is_noticed_in_both_families() {
    let mut missed = Vec::new();
    for family in Family::ALL {
        let rows = rows(family);
        for (name, fault) in FAULTS {
            let cases = noticed(&rows, fault);
            eprintln!("{family}: {name}: {cases:?}");
            if cases.is_empty() {
                missed.push(format!("{family}: {name}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn without_a_fault_nothing_is_noticed() {
    for family in Family::ALL {
        assert_eq!(noticed(&rows(family), |_, _| {}), [0; 0]);
    }
}
