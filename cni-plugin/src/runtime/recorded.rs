//! Port mappings in an attachment's record, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use seaway_firewall::{HostPort, Protocol};

use super::{HostIp, PortMapping, Runtime};
use crate::ipam::RecordedPort;

impl Runtime {
    /// All mappings, for the record.
    pub(crate) fn recorded_ports(&self) -> Vec<RecordedPort> {
        self.port_mappings
            .iter()
            .map(PortMapping::recorded)
            .collect()
    }
}

impl PortMapping {
    fn recorded(&self) -> RecordedPort {
        RecordedPort {
            protocol: self.protocol.to_string(),
            host_ip: match self.host_ip {
                HostIp::All => None,
                HostIp::AllV4 => Some(Ipv4Addr::UNSPECIFIED.into()),
                HostIp::AllV6 => Some(Ipv6Addr::UNSPECIFIED.into()),
                HostIp::One(ip) => Some(ip),
            },
            host_port: self.host_port,
            container_port: self.container_port,
        }
    }

    /// `None`: nothing that we have written.
    fn of_record(port: &RecordedPort) -> Option<Self> {
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .find(|protocol| protocol.to_string() == port.protocol)?;
        let host_ip = match port.host_ip {
            None => HostIp::All,
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => HostIp::AllV4,
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => HostIp::AllV6,
            Some(ip) => HostIp::One(ip),
        };
        (port.host_port != 0 && port.container_port != 0).then_some(Self {
            protocol,
            host_ip,
            host_port: port.host_port,
            container_port: port.container_port,
        })
    }
}

/// The ports of a record that lead to one address of the pod.
///
/// # Errors
/// The first one that is nothing that we have written.
pub(crate) fn host_ports(ports: &[RecordedPort], pod: IpAddr) -> Result<Vec<HostPort>, String> {
    let mut all = Vec::new();
    for port in ports {
        let mapping =
            PortMapping::of_record(port).ok_or_else(|| format!("{port:?} is no hostPort"))?;
        all.extend(mapping.host_port(pod));
    }
    Ok(all)
}

/// Whether the host's own 127.0.0.0/8 is among the addresses of one of them.
pub(crate) fn serve_loopback(ports: &[RecordedPort]) -> bool {
    let mut mappings = ports.iter().filter_map(PortMapping::of_record);
    mappings.any(|mapping| mapping.serves_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Object;

    #[test]
    fn a_record_leads_to_the_same_ports() {
        let conf = serde_json::json!({"runtimeConfig": {"portMappings": [
            {"hostPort": 1, "containerPort": 10},
            {"hostPort": 2, "containerPort": 20, "protocol": "UDP", "hostIP": "0.0.0.0"},
            {"hostPort": 3, "containerPort": 30, "protocol": "sctp", "hostIP": "::"},
            {"hostPort": 4, "containerPort": 40, "hostIP": "127.0.0.1"},
            {"hostPort": 5, "containerPort": 50, "hostIP": "fd00::1"},
        ]}});
        let object: Object = serde_json::from_value(conf).unwrap();
        let runtime = Runtime::parse(&object).unwrap();
        let text = serde_json::to_string(&runtime.recorded_ports()).unwrap();
        let read: Vec<RecordedPort> = serde_json::from_str(&text).unwrap();
        let pods: [IpAddr; 2] = ["10.0.0.2".parse().unwrap(), "fd00:1::2".parse().unwrap()];
        for pod in pods {
            let again = host_ports(&read, pod).unwrap();
            let want = runtime.port_mappings.iter();
            let want: Vec<HostPort> = want.filter_map(|m| m.host_port(pod)).collect();
            assert_eq!(again, want);
            assert_eq!(again.len(), 3);
        }
        let loopback = read.iter();
        let loopback = loopback.filter(|port| serve_loopback(std::slice::from_ref(*port)));
        let mut loopback: Vec<u16> = loopback.map(|port| port.host_port).collect();
        loopback.sort_unstable();
        assert_eq!(loopback, [1, 2, 4]);
        let broken = RecordedPort {
            protocol: "icmp".into(),
            ..read[0].clone()
        };
        assert!(host_ports(&[broken], pods[0]).unwrap_err().contains("icmp"));
    }
}
