//! The file's fields into values of flags.

use std::net::IpAddr;

use clap::ValueEnum as _;
use ipnetwork::IpNetwork;
use serde_json::Value;

use super::format::{Conntrack, Document, EXTERNAL_IPS, Rules};
use super::{BadFile, ConfigFile, Parsed, Reader};
use crate::args::{DetectLocalMode, NodePortAddress, parse};
use crate::config::ServiceProxy;

impl Reader<'_> {
    pub(super) fn config(&self, document: Document) -> Result<ConfigFile, BadFile> {
        let Document {
            client_connection,
            detect_local,
            iptables,
            ipvs,
            nftables,
            ..
        } = document;
        let mode = document.mode.as_deref().unwrap_or_default();
        // One section is read, that of the mode, but for what ipvs takes from iptables.
        let (section, timing, rules) = match mode {
            "nftables" => ("nftables", nftables.clone(), nftables),
            "ipvs" => ("ipvs", ipvs, iptables.clone()),
            _ => ("iptables", iptables.clone(), iptables.clone()),
        };
        let nodeport_addresses = self.node_ports(document.node_port_addresses, mode)?;
        let config = ConfigFile {
            service_proxy: self.parsed("mode", document.mode.as_ref(), service_proxy)?,
            node_name: self.parsed(
                "hostnameOverride",
                document.hostname_override.as_ref(),
                parse::node_name,
            )?,
            kubeconfig: client_connection
                .kubeconfig
                .filter(|k| !k.is_empty())
                .map(Into::into),
            cluster_cidr: self.parsed("clusterCIDR", document.cluster_cidr.as_ref(), cidrs)?,
            bind_address: self.parsed("bindAddress", document.bind_address.as_ref(), address)?,
            healthz_bind_address: self.parsed(
                "healthzBindAddress",
                document.healthz_bind_address.as_ref(),
                |value| parse::listen(value, parse::HEALTHZ_PORT),
            )?,
            metrics_bind_address: self.parsed(
                "metricsBindAddress",
                document.metrics_bind_address.as_ref(),
                |value| parse::listen(value, parse::METRICS_PORT),
            )?,
            detect_local_mode: self.parsed(
                "detectLocalMode",
                document.detect_local_mode.as_ref(),
                |mode| DetectLocalMode::from_str(mode, false),
            )?,
            pod_bridge_interface: self.parsed(
                "detectLocal.bridgeInterface",
                detect_local.bridge_interface.as_ref(),
                parse::interface,
            )?,
            pod_interface_name_prefix: self.parsed(
                "detectLocal.interfaceNamePrefix",
                detect_local.interface_name_prefix.as_ref(),
                parse::interface,
            )?,
            nodeport_addresses,
            localhost_nodeports: iptables.localhost_node_ports,
            bind_address_hard_fail: document.bind_address_hard_fail,
            oom_score_adj: self.oom_score_adj(document.oom_score_adj)?,
            masquerade_all: rules.masquerade_all,
            external_ips: self.external_ips(document.feature_gates.as_ref())?,
            ..ConfigFile::default()
        };
        let config = self.with_timing(config, section, &timing, &rules)?;
        self.with_conntrack(config, &document.conntrack)
    }

    fn with_timing(
        &self,
        config: ConfigFile,
        section: &str,
        timing: &Rules,
        rules: &Rules,
    ) -> Result<ConfigFile, BadFile> {
        let name = |field: &str| format!("{section}.{field}");
        // Zero means what kube-proxy would do without the field.
        let period = |field: &str, value: &Option<String>| {
            let parsed = self.parsed(&name(field), value.as_ref(), parse::duration);
            Ok(parsed?.filter(|period| !period.is_zero()))
        };
        let sync_period = period("syncPeriod", &timing.sync_period)?;
        let min_sync_period = period("minSyncPeriod", &timing.min_sync_period)?;
        if let (Some(all), Some(min)) = (sync_period, min_sync_period)
            && min > all
        {
            let value = format!("{min:?}");
            return Err(self.bad(&name("minSyncPeriod"), &value, "longer than syncPeriod"));
        }
        let bit = rules.masquerade_bit.map(|bit| {
            let checked = parse::masquerade_bit(&bit.to_string());
            checked.map_err(|problem| self.bad(&name("masqueradeBit"), &bit, problem))
        });
        Ok(ConfigFile {
            sync_period,
            min_sync_period,
            masquerade_bit: bit.transpose()?,
            ..config
        })
    }

    fn with_conntrack(&self, config: ConfigFile, set: &Conntrack) -> Result<ConfigFile, BadFile> {
        let time = |field: &str, value: &Option<String>| {
            self.parsed(
                &format!("conntrack.{field}"),
                value.as_ref(),
                parse::duration,
            )
        };
        Ok(ConfigFile {
            max_per_core: set.max_per_core,
            min: set.min,
            tcp_established_timeout: time("tcpEstablishedTimeout", &set.tcp_established_timeout)?,
            tcp_close_wait_timeout: time("tcpCloseWaitTimeout", &set.tcp_close_wait_timeout)?,
            tcp_be_liberal: set.tcp_be_liberal,
            udp_timeout: time("udpTimeout", &set.udp_timeout)?,
            udp_stream_timeout: time("udpStreamTimeout", &set.udp_stream_timeout)?,
            ..config
        })
    }

    fn oom_score_adj(&self, value: Option<i64>) -> Result<Option<i16>, BadFile> {
        let Some(value) = value else { return Ok(None) };
        let fits = i16::try_from(value).ok();
        let fits = fits.filter(|value| parse::OOM_SCORE_ADJ.contains(value));
        let problem = "expected -1000 to 1000";
        fits.map(Some)
            .ok_or_else(|| self.bad("oomScoreAdj", &value, problem))
    }

    /// The one feature gate that is known here.
    fn external_ips(&self, gates: Option<&Value>) -> Result<Option<bool>, BadFile> {
        let gate = gates.and_then(|gates| gates.get(EXTERNAL_IPS));
        match gate {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(allowed)) => Ok(Some(*allowed)),
            Some(other) => {
                let field = format!("featureGates.{EXTERNAL_IPS}");
                Err(self.bad(&field, other, "expected true or false"))
            }
        }
    }

    fn node_ports(
        &self,
        values: Option<Vec<String>>,
        mode: &str,
    ) -> Result<Option<Vec<NodePortAddress>>, BadFile> {
        let values = values.filter(|values| !values.is_empty());
        let Some(values) = values else {
            // What who has chosen nftables is used to.
            return Ok((mode == "nftables").then(|| vec![NodePortAddress::Primary]));
        };
        let mut addresses = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let parsed = parse::node_port_address(value).and_then(|address| {
                let alone = address != NodePortAddress::Primary || values.len() == 1;
                alone
                    .then_some(address)
                    .ok_or_else(|| "primary cannot be combined with other values".to_owned())
            });
            let field = format!("nodePortAddresses[{index}]");
            addresses.push(parsed.map_err(|problem| self.bad(&field, value, problem))?);
        }
        Ok(Some(addresses))
    }
}

fn service_proxy(mode: &str) -> Parsed<ServiceProxy> {
    match mode {
        "iptables" | "nftables" | "ipvs" => Ok(ServiceProxy::Iptables),
        _ => Err("expected iptables, nftables, ipvs or nothing".to_owned()),
    }
}

fn cidrs(value: &str) -> Parsed<Vec<IpNetwork>> {
    value
        .split(',')
        .map(|cidr| parse::cluster_cidr(cidr.trim()))
        .collect()
}

fn address(value: &str) -> Parsed<IpAddr> {
    value.parse().map_err(|e: std::net::AddrParseError| {
        format!("{e}; expected an address, such as 192.0.2.1")
    })
}
