//! Ports of the node that pods take.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use super::Demand;
use crate::spec;
use crate::state::Rejection;

/// All addresses.
const ANY: &str = "0.0.0.0";

/// One port of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `0.0.0.0` is all of them.
    pub ip: String,
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
    /// 1 to 65535.
    pub port: i32,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.ip, self.port, self.protocol)
    }
}

impl HostPort {
    /// Both cannot be had at the same time.
    fn conflicts(&self, other: &Self) -> bool {
        let same_ip = self.ip == other.ip || self.ip == ANY || other.ip == ANY;
        same_ip && self.protocol == other.protocol && self.port == other.port
    }
}

/// What the containers of `pod` ask for. On the node's network every port of a
/// container is one of the node.
pub(super) fn of(pod: &Pod) -> BTreeSet<HostPort> {
    let on_node = spec::host_network(pod);
    spec::containers(pod)
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let own = on_node.then_some(port.container_port);
            let number = port.host_port.filter(|p| *p > 0).or(own)?;
            let or = |field: &Option<String>, default: &str| {
                let set = field.clone().filter(|text| !text.is_empty());
                set.unwrap_or_else(|| default.to_owned())
            };
            Some(HostPort {
                ip: or(&port.host_ip, ANY),
                protocol: or(&port.protocol, "TCP"),
                port: number,
            })
        })
        .collect()
}

/// No other pod has one of them.
pub(super) fn are_free(wanted: &BTreeSet<HostPort>, others: &[Demand]) -> Result<(), Rejection> {
    let taken = || others.iter().flat_map(|other| &other.host_ports);
    let conflict = wanted
        .iter()
        .find_map(|port| Some((port, taken().find(|other| other.conflicts(port))?)));
    match conflict {
        None => Ok(()),
        Some((port, other)) => Err(Rejection {
            reason: "NodePorts",
            message: format!("host port {port} is not free: another pod has {other}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports(host_network: bool, ports: &Value) -> BTreeSet<HostPort> {
        let pod = json!({"spec": {"hostNetwork": host_network,
            "containers": [{"name": "c", "ports": ports}]}});
        of(&serde_json::from_value(pod).unwrap())
    }

    fn texts(ports: &BTreeSet<HostPort>) -> Vec<String> {
        ports.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn which_ports_are_the_nodes() {
        let listed = json!([{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 1, "hostPort": 8080, "hostIP": "10.0.0.1"}]);
        assert_eq!(texts(&ports(false, &listed)), ["10.0.0.1:8080/TCP"]);
        let all = ["0.0.0.0:80/TCP", "0.0.0.0:53/UDP", "10.0.0.1:8080/TCP"];
        assert_eq!(texts(&ports(true, &listed)), all);
    }

    #[test]
    fn conflicts() {
        let port = |ip: &str, protocol: &str, port: i32| json!([{"containerPort": port, "hostIP": ip, "protocol": protocol}]);
        let web = port("", "TCP", 80);
        for (wanted, has, is_free) in [
            (&web, &web, false),
            (&web, &port("", "TCP", 81), true),
            (&web, &port("", "UDP", 80), true),
            (&web, &port("10.0.0.1", "TCP", 80), false),
            (&port("10.0.0.1", "TCP", 80), &web, false),
            (
                &port("10.0.0.1", "TCP", 80),
                &port("10.0.0.2", "TCP", 80),
                true,
            ),
            (&json!([]), &web, true),
        ] {
            let other = Demand {
                host_ports: ports(true, has),
                ..Demand::default()
            };
            let others = [Demand::default(), other];
            let got = are_free(&ports(true, wanted), &others);
            assert_eq!(got.is_ok(), is_free, "{wanted} beside {has}");
        }
        let other = Demand {
            host_ports: ports(true, &web),
            ..Demand::default()
        };
        let rejection = are_free(&ports(true, &port("10.0.0.1", "TCP", 80)), &[other]).unwrap_err();
        assert_eq!(rejection.reason, "NodePorts");
        assert_eq!(
            rejection.message,
            "host port 10.0.0.1:80/TCP is not free: another pod has 0.0.0.0:80/TCP"
        );
    }
}
