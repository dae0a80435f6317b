//! Faults that compile could have, put into its result on purpose: the table of flows
//! has to notice each of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use seaway_proxy_core::desired::{
    DesiredState, Family, FamilyState, Frontend, FrontendKind, LocalSources, Protocol, ServicePort,
    TrafficPolicy,
};
use seaway_proxy_core::flows::{Client, Flow, Given, flows};
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
        let mut endpoints = flow.given.endpoints.split_whitespace();
        let all_terminate = endpoints.all(terminates);
        ports(half, |port| {
            if all_terminate {
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
                if port.source_ranges.as_ref().is_some_and(Vec::is_empty) {
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

/// Whether a row's endpoint does so, whether or not it still serves.
fn terminates(endpoint: &str) -> bool {
    let mut states = endpoint.split(':').skip(1);
    states.any(|state| matches!(state, "leaving" | "gone"))
}

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

/// Source ranges of which none is usable, in either family.
fn no_range() -> Flow {
    Flow {
        cases: &[133],
        family: Family::V4,
        given: Given {
            spec: r#"{"loadBalancerSourceRanges": ["everybody"]}"#,
            endpoints: "h1 t1",
            node: |_| {},
        },
        from: Client::Outside,
        to: "1.2.3.4:80",
        protocol: Protocol::Tcp,
        expect: "unanswered",
    }
}

/// Every row with the state that it comes to.
fn rows(family: Family) -> Vec<(Flow, DesiredState)> {
    let rows = flows().into_iter().chain([no_range()]);
    let rows = rows.map(|flow| Flow { family, ..flow });
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

/// A fault that does more than it says is noticed for what it does besides.
#[test]
fn faults_are_noticed_where_they_are_and_nowhere_else() {
    let fault = |name: &str| {
        let mut all = FAULTS.into_iter();
        all.find(|(fault, _)| *fault == name).unwrap().1
    };
    let all_terminate = fault("nobody answers while all terminate");
    let no_entries = fault("source ranges without entries admit everybody");
    let lost = fault("source ranges are lost");
    for family in Family::ALL {
        let rows = rows(family);
        let leaving = noticed(&rows, all_terminate);
        let of_leaving = |case: &u16| (140..=151).contains(case) || *case == 222;
        assert!(leaving.iter().all(of_leaving), "{family}: {leaving:?}");
        let (no_entries, lost) = (noticed(&rows, no_entries), noticed(&rows, lost));
        assert!(no_entries.contains(&133), "{family}: {no_entries:?}");
        // Those whose ranges have entries are another fault's.
        assert!(lost.contains(&121) && !no_entries.contains(&121));
    }
}
