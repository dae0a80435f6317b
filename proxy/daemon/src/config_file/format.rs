//! The file's fields, as `k8s.io/kube-proxy/config/v1alpha1` names them.

use serde::Deserialize;
use serde_json::Value;

use super::Ignored;

/// The whole of it. What has no effect here is of any type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    pub(super) mode: Option<String>,
    pub(super) hostname_override: Option<String>,
    #[serde(default, deserialize_with = "section")]
    pub(super) client_connection: ClientConnection,
    #[serde(rename = "clusterCIDR")]
    pub(super) cluster_cidr: Option<String>,
    pub(super) bind_address: Option<String>,
    pub(super) healthz_bind_address: Option<String>,
    pub(super) metrics_bind_address: Option<String>,
    pub(super) detect_local_mode: Option<String>,
    #[serde(default, deserialize_with = "section")]
    pub(super) detect_local: DetectLocal,
    pub(super) node_port_addresses: Option<Vec<String>>,
    #[serde(default, deserialize_with = "section")]
    pub(super) iptables: Rules,
    #[serde(default, deserialize_with = "section")]
    pub(super) ipvs: Rules,
    #[serde(default, deserialize_with = "section")]
    pub(super) nftables: Rules,
    #[serde(default, deserialize_with = "section")]
    pub(super) conntrack: Conntrack,
    pub(super) feature_gates: Option<Value>,
    #[serde(rename = "logging")]
    _logging: Option<Value>,
    pub(super) bind_address_hard_fail: Option<bool>,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<Value>,
    #[serde(rename = "showHiddenMetricsForVersion")]
    _show_hidden_metrics_for_version: Option<Value>,
    pub(super) oom_score_adj: Option<i64>,
    #[serde(rename = "configSyncPeriod")]
    _config_sync_period: Option<Value>,
    #[serde(rename = "portRange")]
    _port_range: Option<Value>,
    #[serde(rename = "windowsRunAsService")]
    _windows_run_as_service: Option<Value>,
    #[serde(rename = "winkernel")]
    _winkernel: Option<Value>,
}

/// `clientConnection`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientConnection {
    pub(super) kubeconfig: Option<String>,
    #[serde(rename = "contentType")]
    _content_type: Option<Value>,
    #[serde(rename = "acceptContentTypes")]
    _accept_content_types: Option<Value>,
    #[serde(rename = "qps")]
    _qps: Option<Value>,
    #[serde(rename = "burst")]
    _burst: Option<Value>,
}

/// `detectLocal`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DetectLocal {
    pub(super) bridge_interface: Option<String>,
    pub(super) interface_name_prefix: Option<String>,
}

/// `iptables`, `ipvs` and `nftables`: each has some of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rules {
    pub(super) masquerade_all: Option<bool>,
    pub(super) masquerade_bit: Option<i64>,
    pub(super) localhost_node_ports: Option<bool>,
    pub(super) sync_period: Option<String>,
    pub(super) min_sync_period: Option<String>,
    #[serde(rename = "scheduler")]
    _scheduler: Option<Value>,
    #[serde(rename = "excludeCIDRs")]
    _exclude_cidrs: Option<Value>,
    #[serde(rename = "strictARP")]
    _strict_arp: Option<Value>,
    #[serde(rename = "tcpTimeout")]
    _tcp_timeout: Option<Value>,
    #[serde(rename = "tcpFinTimeout")]
    _tcp_fin_timeout: Option<Value>,
    #[serde(rename = "udpTimeout")]
    _udp_timeout: Option<Value>,
}

/// `conntrack`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Conntrack {
    pub(super) max_per_core: Option<u32>,
    pub(super) min: Option<u32>,
    pub(super) tcp_established_timeout: Option<String>,
    pub(super) tcp_close_wait_timeout: Option<String>,
    pub(super) tcp_be_liberal: Option<bool>,
    pub(super) udp_timeout: Option<String>,
    pub(super) udp_stream_timeout: Option<String>,
}

/// A section may be there and null.
fn section<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The feature gate that has an effect here.
pub(super) const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

/// Fields that do something in kube-proxy and nothing here, and what to do instead.
const WITHOUT_EFFECT: [(&str, &str); 19] = [
    ("logging", "RUST_LOG chooses what is logged"),
    ("enableProfiling", "there is no profiling"),
    ("showHiddenMetricsForVersion", "no metric is hidden"),
    ("configSyncPeriod", "objects are followed, not listed again"),
    ("portRange", "it does nothing in kube-proxy either"),
    ("windowsRunAsService", "this is no Windows"),
    ("winkernel", "this is no Windows"),
    ("clientConnection.contentType", "the API is spoken in JSON"),
    (
        "clientConnection.acceptContentTypes",
        "the API is spoken in JSON",
    ),
    ("clientConnection.qps", "requests are few"),
    ("clientConnection.burst", "requests are few"),
    ("ipvs.scheduler", "endpoints are chosen at random"),
    ("ipvs.excludeCIDRs", "there is no IPVS"),
    ("ipvs.strictARP", "load balancer IPs are on no interface"),
    ("ipvs.tcpTimeout", "there is no IPVS"),
    ("ipvs.tcpFinTimeout", "there is no IPVS"),
    ("ipvs.udpTimeout", "there is no IPVS"),
    (
        "ipvs.masqueradeAll",
        "iptables.masqueradeAll is what counts",
    ),
    (
        "ipvs.masqueradeBit",
        "iptables.masqueradeBit is what counts",
    ),
];

/// Those of them that say something.
pub(super) fn without_effect(document: &Value) -> Vec<Ignored> {
    let said = WITHOUT_EFFECT.iter().filter_map(|&(field, why)| {
        let value = document.pointer(&format!("/{}", field.replace('.', "/")))?;
        says_something(value).then(|| Ignored {
            field: field.to_owned(),
            value: value.to_string(),
            why,
        })
    });
    said.chain(other_gates(document)).collect()
}

/// All feature gates but the one that is honoured.
fn other_gates(document: &Value) -> Option<Ignored> {
    let mut gates = document.get("featureGates")?.clone();
    if let Some(gates) = gates.as_object_mut() {
        gates.remove(EXTERNAL_IPS);
    }
    says_something(&gates).then(|| Ignored {
        field: "featureGates".to_owned(),
        value: gates.to_string(),
        why: "there are no such feature gates",
    })
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !["", "0", "0s"].contains(&text.as_str()),
        Value::Array(values) => values.iter().any(says_something),
        Value::Object(fields) => fields.values().any(says_something),
    }
}
