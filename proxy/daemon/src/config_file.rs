//! kube-proxy's own configuration file, for nodes that have one already.
//!
//! A pure conversion: text in, values of flags out, and what is accepted without effect. What
//! has an effect in kube-proxy and none here is told; what says nothing (null, zero, an empty
//! word), as in the files that kubeadm writes, is not. Flags and environment are laid over it
//! elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnetwork::IpNetwork;
use serde_json::Value;

use crate::args::{DetectLocalMode, NodePortAddress};
use crate::config::ServiceProxy;

mod convert;
mod followed;
mod format;
#[cfg(test)]
mod tests;

pub(crate) use followed::Followed;
use format::Document;

const API_VERSION: &str = "kubeproxy.config.k8s.io/v1alpha1";
const KIND: &str = "KubeProxyConfiguration";

/// What a file says; each value is nothing where the file is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) service_proxy: Option<ServiceProxy>,
    pub(crate) node_name: Option<String>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) cluster_cidr: Option<Vec<IpNetwork>>,
    pub(crate) bind_address: Option<IpAddr>,
    pub(crate) healthz_bind_address: Option<SocketAddr>,
    pub(crate) metrics_bind_address: Option<SocketAddr>,
    pub(crate) detect_local_mode: Option<DetectLocalMode>,
    pub(crate) pod_bridge_interface: Option<String>,
    pub(crate) pod_interface_name_prefix: Option<String>,
    pub(crate) nodeport_addresses: Option<Vec<NodePortAddress>>,
    pub(crate) localhost_nodeports: Option<bool>,
    pub(crate) masquerade_all: Option<bool>,
    pub(crate) external_ips: Option<bool>,
    pub(crate) masquerade_bit: Option<u8>,
    pub(crate) sync_period: Option<Duration>,
    pub(crate) min_sync_period: Option<Duration>,
    pub(crate) max_per_core: Option<u32>,
    pub(crate) min: Option<u32>,
    pub(crate) tcp_established_timeout: Option<Duration>,
    pub(crate) tcp_close_wait_timeout: Option<Duration>,
    pub(crate) tcp_be_liberal: Option<bool>,
    pub(crate) udp_timeout: Option<Duration>,
    pub(crate) udp_stream_timeout: Option<Duration>,
    pub(crate) bind_address_hard_fail: Option<bool>,
    pub(crate) oom_score_adj: Option<i16>,
}

/// A field that does not do what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignored {
    pub(crate) field: String,
    pub(crate) value: String,
    pub(crate) why: &'static str,
}

/// A file that cannot be meant.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {field}: {value}: {problem}")]
pub(crate) struct BadFile {
    file: String,
    field: String,
    value: String,
    problem: String,
}

/// Reads the text of `file`, in YAML or JSON.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn read(file: &Path, text: &str) -> Result<(ConfigFile, Vec<Ignored>), BadFile> {
    let reader = Reader { file };
    let value = reader.yaml(text)?;
    for (field, expect) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let got = value.get(field).unwrap_or(&Value::Null);
        if got != expect {
            return Err(reader.bad(field, got, format!("expected {expect}")));
        }
    }
    let (document, mut ignored) = reader.document(&value)?;
    let config = reader.config(document)?;
    ignored.extend(format::without_effect(&value));
    ignored.extend(mode_taken(&value));
    Ok((config, ignored))
}

/// The other modes' promises are kept by rules of iptables.
fn mode_taken(document: &Value) -> Option<Ignored> {
    let value = document.get("mode")?.as_str()?;
    matches!(value, "nftables" | "ipvs").then(|| Ignored {
        field: "mode".to_owned(),
        value: value.to_owned(),
        why: "Services are served by iptables",
    })
}

/// Words of the problem are all that is needed of most errors.
type Parsed<T> = Result<T, String>;

struct Reader<'a> {
    file: &'a Path,
}

impl Reader<'_> {
    fn bad(&self, field: &str, value: &dyn ToString, problem: impl Into<String>) -> BadFile {
        BadFile {
            file: self.file.display().to_string(),
            field: field.to_owned(),
            value: value.to_string(),
            problem: problem.into(),
        }
    }

    fn yaml(&self, text: &str) -> Result<Value, BadFile> {
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let problem = error.to_string().replace('\n', " ");
            self.bad("document", &"not YAML", problem)
        })
    }

    /// A wrong type and an unknown field both name their path; only the former is the end, as in
    /// kube-proxy.
    fn document(&self, value: &Value) -> Result<(Document, Vec<Ignored>), BadFile> {
        let at = |path: &str| {
            let pointer = format!("/{}", path.replace('.', "/"));
            value.pointer(&pointer).unwrap_or(&Value::Null)
        };
        let mut track = serde_path_to_error::Track::new();
        let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
        let mut unknown = Vec::new();
        let read = serde_ignored::deserialize(deserializer, |path| {
            // An optional section is a step of its own there, shown as a question mark.
            let field = path.to_string().replace("?.", "");
            let value = at(&field).to_string();
            let why = "unknown field";
            unknown.push(Ignored { field, value, why });
        });
        let document = read.map_err(|error: serde_json::Error| {
            let field = track.path().to_string();
            self.bad(&field, at(&field), error.to_string())
        })?;
        Ok((document, unknown))
    }

    /// Nothing if there is no value, or an empty one.
    fn parsed<T>(
        &self,
        field: &str,
        value: Option<&String>,
        parse: impl FnOnce(&str) -> Parsed<T>,
    ) -> Result<Option<T>, BadFile> {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let parsed = parse(value);
        parsed
            .map(Some)
            .map_err(|problem| self.bad(field, &format!("{value:?}"), problem))
    }
}
