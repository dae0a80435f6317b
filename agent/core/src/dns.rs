//! What a pod's `/etc/resolv.conf` says.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use crate::spec;

/// Name resolution of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    /// `nameserver` lines.
    pub servers: Vec<String>,
    /// The `search` line.
    pub searches: Vec<String>,
    /// The `options` line.
    pub options: Vec<String>,
}

/// glibc reads no more `nameserver` lines than this (resolv.conf(5), MAXNS).
const MAX_SERVERS: usize = 3;
/// Kubernetes' limit of search domains.
const MAX_SEARCHES: usize = 32;

/// Reads a resolv.conf file.
pub fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            // The last search or domain line counts.
            Some("search" | "domain") => config.searches = words.map(str::to_owned).collect(),
            Some("options") => config.options.extend(words.map(str::to_owned)),
            _ => {}
        }
    }
    config
}

/// Name resolution of `pod`, by its policy. Second, a sentence for the pod's owner
/// where something had to be left out.
pub fn config(
    pod: &Pod,
    host: &DnsConfig,
    cluster_dns: &[IpAddr],
    cluster_domain: &str,
) -> (DnsConfig, Option<(&'static str, String)>) {
    let pod_spec = pod.spec.as_ref();
    let policy = pod_spec
        .and_then(|s| s.dns_policy.as_deref())
        .unwrap_or("ClusterFirst");
    let wants_cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !spec::host_network(pod),
        _ => false,
    };
    let mut warning = None;
    let mut config = match policy {
        "None" => DnsConfig::default(),
        _ if wants_cluster && !cluster_dns.is_empty() => {
            cluster(spec::namespace(pod), host, cluster_dns, cluster_domain)
        }
        _ => {
            if wants_cluster {
                warning = Some((
                    "MissingClusterDNS",
                    "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.".to_owned(),
                ));
            }
            host.clone()
        }
    };
    if let Some(extra) = pod_spec.and_then(|s| s.dns_config.as_ref()) {
        config
            .servers
            .extend(extra.nameservers.iter().flatten().cloned());
        config
            .searches
            .extend(extra.searches.iter().flatten().cloned());
        for option in extra.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            config.options.retain(|o| o.split(':').next() != Some(name));
            config.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name.clone(),
            });
        }
    }
    unique(&mut config.servers);
    unique(&mut config.searches);
    let limited = limit(&mut config);
    (config, warning.or(limited))
}

fn cluster(namespace: &str, host: &DnsConfig, servers: &[IpAddr], domain: &str) -> DnsConfig {
    let ours = [
        format!("{namespace}.svc.{domain}"),
        format!("svc.{domain}"),
        domain.to_owned(),
    ];
    DnsConfig {
        servers: servers.iter().map(ToString::to_string).collect(),
        searches: ours
            .into_iter()
            .chain(host.searches.iter().cloned())
            .collect(),
        options: vec!["ndots:5".into()],
    }
}

fn unique(list: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    list.retain(|entry| seen.insert(entry.clone()));
}

fn limit(config: &mut DnsConfig) -> Option<(&'static str, String)> {
    let too_many = config.servers.len() > MAX_SERVERS || config.searches.len() > MAX_SEARCHES;
    config.servers.truncate(MAX_SERVERS);
    config.searches.truncate(MAX_SEARCHES);
    too_many.then(|| {
        let servers = config.servers.join(" ");
        let searches = config.searches.join(" ");
        let message = format!(
            "Nameserver or search limits were exceeded, some have been omitted, the applied lines are: nameserver {servers}, search {searches}"
        );
        ("DNSConfigForming", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: serde_json::Value, dns: &[&str]) -> (DnsConfig, Option<&'static str>) {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"namespace": "ns"}, "spec": spec})).unwrap();
        let host = parse("# c\nnameserver 9.9.9.9\nsearch corp.example\noptions timeout:1\n");
        let dns: Vec<IpAddr> = dns.iter().map(|ip| ip.parse().unwrap()).collect();
        let (config, warning) = config(&pod, &host, &dns, "cluster.local");
        (config, warning.map(|(reason, _)| reason))
    }

    #[test]
    fn policies() {
        let cluster = DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: [
                "ns.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
                "corp.example",
            ]
            .map(String::from)
            .to_vec(),
            options: vec!["ndots:5".into()],
        };
        let host = parse("nameserver 9.9.9.9\nsearch corp.example\noptions timeout:1\n");
        let base = json!({"containers": []});
        assert_eq!(of(base.clone(), &["10.96.0.10"]), (cluster.clone(), None));
        assert_eq!(of(base, &[]), (host.clone(), Some("MissingClusterDNS")));
        let host_net = json!({"containers": [], "hostNetwork": true});
        assert_eq!(of(host_net, &["10.96.0.10"]), (host.clone(), None));
        let forced =
            json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"});
        assert_eq!(of(forced, &["10.96.0.10"]), (cluster, None));
        let default = json!({"containers": [], "dnsPolicy": "Default"});
        assert_eq!(of(default, &["10.96.0.10"]), (host, None));
    }

    #[test]
    fn own_config_is_merged_and_limited() {
        let (config, warning) = of(
            json!({"containers": [], "dnsPolicy": "None", "dnsConfig": {
                "nameservers": ["1.1.1.1", "1.1.1.1"], "searches": ["a"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}),
            &[],
        );
        assert_eq!(config.servers, ["1.1.1.1"]);
        assert_eq!(config.options, ["ndots:2", "edns0"]);
        assert_eq!(warning, None);
        let (config, warning) = of(
            json!({"containers": [], "dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"],
                "options": [{"name": "ndots", "value": "2"}]}}),
            &["10.96.0.10"],
        );
        assert_eq!(config.servers, ["10.96.0.10", "1.1.1.1", "2.2.2.2"]);
        assert_eq!(config.options, ["ndots:2"]);
        assert_eq!(warning, Some("DNSConfigForming"));
    }
}
