//! Host names: a pod's own and its `/etc/hosts`.

use k8s_openapi::api::core::v1::Pod;

use crate::spec;

/// Linux' limit of a host name, less one (`HOST_NAME_MAX` of limits.h is 64).
const MAX_HOSTNAME: usize = 63;

/// The pod's host name; `spec.hostname` or the pod's name, cut to a legal length.
pub fn hostname(pod: &Pod) -> String {
    let pod_spec = pod.spec.as_ref();
    let given = pod_spec.and_then(|s| s.hostname_override.clone().or_else(|| s.hostname.clone()));
    let mut name = given
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| spec::name(pod).to_owned());
    name.truncate(MAX_HOSTNAME);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// The file for a pod with addresses of its own.
pub fn pod_hosts(pod: &Pod, ips: &[String], cluster_domain: &str) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    let hostname = hostname(pod);
    let subdomain = pod
        .spec
        .as_ref()
        .and_then(|s| s.subdomain.as_ref())
        .filter(|s| !s.is_empty());
    let names = match subdomain {
        Some(subdomain) => {
            let namespace = spec::namespace(pod);
            format!("{hostname}.{subdomain}.{namespace}.svc.{cluster_domain}\t{hostname}")
        }
        None => hostname,
    };
    text.extend(ips.iter().flat_map(|ip| [ip, "\t", &names, "\n"]));
    aliases(pod, &mut text);
    text
}

/// The file for a pod on the node's network: the node's file and the aliases.
pub fn host_network_hosts(pod: &Pod, node_file: &str) -> String {
    let mut text = format!("# Kubernetes-managed hosts file (host network).\n{node_file}");
    aliases(pod, &mut text);
    text
}

fn aliases(pod: &Pod, text: &mut String) {
    let aliases = pod
        .spec
        .as_ref()
        .and_then(|s| s.host_aliases.as_deref())
        .unwrap_or_default();
    if aliases.is_empty() {
        return;
    }
    text.push_str("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.extend([alias.ip.as_str(), "\t", &names, "\n"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "web-0", "namespace": "ns"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn names() {
        assert_eq!(hostname(&pod(json!({"containers": []}))), "web-0");
        assert_eq!(
            hostname(&pod(json!({"containers": [], "hostname": "h"}))),
            "h"
        );
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
        assert_eq!(
            hostname(&pod(json!({"containers": [], "hostname": long}))),
            "a".repeat(62)
        );
    }

    #[test]
    fn files() {
        let pod = pod(json!({"containers": [], "subdomain": "db",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]}));
        let text = pod_hosts(&pod, &["10.0.0.5".into()], "cluster.local");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(
            text.contains("\n10.0.0.5\tweb-0.db.ns.svc.cluster.local\tweb-0\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"),
            "{text}"
        );
        let text = host_network_hosts(&pod, "127.0.0.1 localhost\n");
        assert!(text.starts_with(
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n#"
        ));
    }
}
