//! Lays the command line and the environment over a file of kube-proxy's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _};
use tracing::warn;

use super::{Bind, Cli, RunArgs, Verb};
use crate::config_file::{self, ConfigFile, Followed};

/// The flags that somebody has given, in whatever way.
pub type Given = BTreeSet<String>;

impl Cli {
    /// Parses a command line, and remembers which flags of `run` were given.
    ///
    /// # Errors
    /// What clap says of bad words, or instead of doing something.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let args = match &mut cli.verb {
            Verb::Run(args) => Some(args.as_mut()),
            Verb::Explain(args) => Some(&mut args.run),
            _ => None,
        };
        if let (Some(args), Some((_, run))) = (args, matches.subcommand()) {
            let said = |id: &&str| {
                let source = run.value_source(id);
                source.is_some_and(|source| source != ValueSource::DefaultValue)
            };
            // Groups have ids, too, and no source.
            let ids = run.ids().map(clap::Id::as_str);
            args.given = ids
                .filter(|id| run.try_contains_id(id).is_ok())
                .filter(said)
                .map(str::to_owned)
                .collect();
        }
        Ok(cli)
    }
}

impl RunArgs {
    /// Takes from `--config` what no flag and no variable says, and tells what has no effect.
    /// Gives the file, to be followed, if there is one.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is wrong.
    pub(crate) fn take_file(&mut self, host_name: &str) -> anyhow::Result<Option<Followed>> {
        let Some(path) = self.config.clone() else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read --config {}", path.display()))?;
        let (file, ignored) = config_file::read(&path, &text).context("use --config")?;
        for ignored in ignored {
            let config_file::Ignored { field, value, why } = ignored;
            warn!(file = %path.display(), field, value, why, "Configuration without effect");
        }
        let flags = self.clone();
        self.lay_over(file.clone());
        Ok(Some(Followed::new(path, file, flags, host_name)))
    }

    pub(crate) fn lay_over(&mut self, file: ConfigFile) {
        let mut given = std::mem::take(&mut self.given);
        let mut silent = |flag: &str| given.insert(flag.to_owned());
        /// A flag that has not been given has the file's value, if there is one.
        macro_rules! take {
            ($($value:ident => $($flag:ident).+ as $name:ident;)*) => {
                $(if let Some(value) = file.$value && silent(stringify!($name)) {
                    self.$($flag).+ = value.into();
                })*
            };
        }
        let healthz_bind_address = file.healthz_bind_address.map(|addr| Bind(Some(addr)));
        let metrics_bind_address = file.metrics_bind_address.map(|addr| Bind(Some(addr)));
        if let Some(bind) = healthz_bind_address
            && silent("healthz_bind_address")
        {
            self.healthz_bind_address = bind;
        }
        if let Some(bind) = metrics_bind_address
            && silent("metrics_bind_address")
        {
            self.metrics_bind_address = bind;
        }
        take! {
            service_proxy => service_proxy as service_proxy;
            node_name => node_name as node_name;
            kubeconfig => kubeconfig as kubeconfig;
            cluster_cidr => cluster_cidr as cluster_cidr;
            bind_address => bind_address as bind_address;
            detect_local_mode => services.detect_local_mode as detect_local_mode;
            pod_bridge_interface => services.pod_bridge_interface as pod_bridge_interface;
            pod_interface_name_prefix => services.pod_interface_name_prefix
                as pod_interface_name_prefix;
            nodeport_addresses => services.nodeport_addresses as nodeport_addresses;
            localhost_nodeports => services.iptables_localhost_nodeports
                as iptables_localhost_nodeports;
            masquerade_all => services.masquerade_all as masquerade_all;
            external_ips => services.allow_service_external_ips as allow_service_external_ips;
            masquerade_bit => tuning.iptables_masquerade_bit as iptables_masquerade_bit;
            sync_period => tuning.iptables_sync_period as iptables_sync_period;
            min_sync_period => tuning.iptables_min_sync_period as iptables_min_sync_period;
            max_per_core => tuning.conntrack_max_per_core as conntrack_max_per_core;
            min => tuning.conntrack_min as conntrack_min;
            tcp_established_timeout => tuning.conntrack_tcp_timeout_established
                as conntrack_tcp_timeout_established;
            tcp_close_wait_timeout => tuning.conntrack_tcp_timeout_close_wait
                as conntrack_tcp_timeout_close_wait;
            tcp_be_liberal => tuning.conntrack_tcp_be_liberal as conntrack_tcp_be_liberal;
            bind_address_hard_fail => tuning.bind_address_hard_fail as bind_address_hard_fail;
            oom_score_adj => tuning.oom_score_adj as oom_score_adj;
            udp_timeout => tuning.conntrack_udp_timeout as conntrack_udp_timeout;
            udp_stream_timeout => tuning.conntrack_udp_timeout_stream
                as conntrack_udp_timeout_stream;
        }
        self.given = given;
    }

    /// As given; else of the family that `--bind-address` has.
    pub(super) fn healthz_bind(&self) -> Option<SocketAddr> {
        self.bind(
            "healthz_bind_address",
            self.healthz_bind_address,
            Ipv6Addr::UNSPECIFIED,
        )
    }

    /// Likewise.
    pub(super) fn metrics_bind(&self) -> Option<SocketAddr> {
        self.bind(
            "metrics_bind_address",
            self.metrics_bind_address,
            Ipv6Addr::LOCALHOST,
        )
    }

    fn bind(&self, flag: &str, bind: Bind, v6: Ipv6Addr) -> Option<SocketAddr> {
        let other = !self.given.contains(flag) && self.bind_address.is_some_and(|a| a.is_ipv6());
        bind.0.map(|addr| {
            let ip = if other { v6.into() } else { addr.ip() };
            SocketAddr::new(ip, addr.port())
        })
    }

    /// This node's address, if `--bind-address` names one.
    pub(super) fn node_address(&self) -> Option<IpAddr> {
        self.bind_address
            .filter(|address| !address.is_unspecified())
    }
}
