//! The call's parameters, from the environment (CNI specification, section 2).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use seaway_netlink::MacAddr;

use crate::error::Error;
use crate::runtime::{parse_ips, parse_mac};

/// The process's environment, as far as it is text.
pub type Environment = BTreeMap<String, String>;

/// What the runtime wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Something with one attachment.
    Attachment(Verb),
    /// Something with all attachments of a network.
    Network(NetworkVerb),
    Version,
}

/// What to do with a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkVerb {
    Gc,
    Status,
}

/// What to do with an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
}

/// Which attachment a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) container_id: String,
    pub(crate) ifname: String,
    /// Absent or empty on DEL when the namespace is gone.
    pub(crate) netns: Option<PathBuf>,
    /// `K8S_POD_NAMESPACE/K8S_POD_NAME`, for people only.
    pub(crate) pod: Option<String>,
    /// `IP` and `MAC` of `CNI_ARGS`: what the pod is to get.
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) mac: Option<MacAddr>,
    /// `CNI_NETNS_OVERRIDE`: the namespace may be the plugin's own.
    pub(crate) own_netns: bool,
}

/// `IFNAMSIZ` without its NUL.
const IFNAME_MAX: usize = 15;
/// A record's file name holds an address, the id and the interface name, and
/// file names have at most 255 bytes.
const CONTAINER_ID_MAX: usize = 180;
/// `CNI_ARGS` keys that Kubernetes' runtimes send.
const POD_KEYS: [&str; 4] = [
    "K8S_POD_NAMESPACE",
    "K8S_POD_NAME",
    "K8S_POD_INFRA_CONTAINER_ID",
    "K8S_POD_UID",
];

impl Command {
    /// `None`: nobody set `CNI_COMMAND`.
    pub(crate) fn from_env(environment: &Environment) -> Result<Option<Self>, Error> {
        let Some(command) = set(environment, "CNI_COMMAND") else {
            return Ok(None);
        };
        match command {
            "ADD" => Ok(Some(Self::Attachment(Verb::Add))),
            "DEL" => Ok(Some(Self::Attachment(Verb::Del))),
            "CHECK" => Ok(Some(Self::Attachment(Verb::Check))),
            "GC" => Ok(Some(Self::Network(NetworkVerb::Gc))),
            "STATUS" => Ok(Some(Self::Network(NetworkVerb::Status))),
            "VERSION" => Ok(Some(Self::Version)),
            _ => Err(Error::UnsupportedVerb {
                verb: command.to_owned(),
            }),
        }
    }
}

impl Args {
    pub(crate) fn from_env(verb: Verb, environment: &Environment) -> Result<Self, Error> {
        let required = ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"];
        let names: Vec<_> = required
            .into_iter()
            .filter(|name| set(environment, name).is_none())
            .filter(|name| !(verb == Verb::Del && *name == "CNI_NETNS"))
            .collect();
        if !names.is_empty() {
            return Err(Error::MissingEnv { names });
        }
        let value = |name| set(environment, name).unwrap_or_default().to_owned();
        let cni_args = environment.get("CNI_ARGS").map_or("", String::as_str);
        let given = parse_cni_args(cni_args, verb)?;
        let args = Self {
            container_id: value("CNI_CONTAINERID"),
            ifname: value("CNI_IFNAME"),
            netns: set(environment, "CNI_NETNS").map(PathBuf::from),
            pod: given.pod,
            ips: given.ips,
            mac: given.mac,
            own_netns: environment
                .get("CNI_NETNS_OVERRIDE")
                .is_some_and(|value| is_true(value)),
        };
        check_container_id(&args.container_id)?;
        check_ifname(&args.ifname)?;
        Ok(args)
    }
}

fn set<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment
        .get(name)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

fn is_true(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

/// Letters, digits, `_`, `.`, `-`, the first one a letter or digit; the same
/// rule serves network names.
pub(crate) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn check_container_id(value: &str) -> Result<(), Error> {
    let invalid = |why: String| {
        Err(Error::InvalidEnv {
            name: "CNI_CONTAINERID",
            value: value.to_owned(),
            why,
        })
    };
    if !is_identifier(value) {
        return invalid("is not letters, digits, '_', '.' and '-' after a letter or digit".into());
    }
    if value.len() > CONTAINER_ID_MAX {
        return invalid(format!("is longer than {CONTAINER_ID_MAX} bytes"));
    }
    Ok(())
}

fn check_ifname(value: &str) -> Result<(), Error> {
    let why = if value.len() > IFNAME_MAX {
        format!("is longer than {IFNAME_MAX} bytes")
    } else if value == "." || value == ".." {
        "is reserved".to_owned()
    } else if value.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        "contains '/', ':' or white space".to_owned()
    } else if value.contains('%') {
        // The kernel would take "eth%d" for a pattern and choose a number.
        "contains '%'".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::InvalidEnv {
        name: "CNI_IFNAME",
        value: value.to_owned(),
        why,
    })
}

/// What `CNI_ARGS` says that we use.
#[derive(Debug, Default)]
struct Given {
    pod: Option<String>,
    ips: Vec<IpAddr>,
    mac: Option<MacAddr>,
}

/// Unknown keys are an error unless `IgnoreUnknown` is set anywhere in the
/// list, which has no order. DEL takes whatever it is given.
fn parse_cni_args(text: &str, verb: Verb) -> Result<Given, Error> {
    let invalid = |why: String| Error::InvalidEnv {
        name: "CNI_ARGS",
        value: text.to_owned(),
        why,
    };
    let mut given = Given::default();
    let mut unknown = None;
    let mut ignore = verb == Verb::Del;
    let (mut namespace, mut name) = (None, None);
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("IgnoreUnknown", value)) => ignore |= is_true(value),
            Some(("K8S_POD_NAMESPACE", value)) => namespace = Some(value),
            Some(("K8S_POD_NAME", value)) => name = Some(value),
            // DEL asks for nothing, so nothing can be wrong with it.
            Some(("IP" | "MAC", _)) | None if verb == Verb::Del => {}
            Some(("IP", value)) => given.ips = parse_ips(value.split(',')).map_err(invalid)?,
            Some(("MAC", value)) => given.mac = parse_mac(value).map_err(invalid)?,
            Some((key, _)) if POD_KEYS.contains(&key) => {}
            Some((key, _)) => unknown = unknown.or(Some(key)),
            None => return Err(invalid(format!("has the entry {pair:?} without '='"))),
        }
    }
    match unknown {
        Some(key) if !ignore => Err(invalid(format!(
            "has the unknown key {key:?}, and IgnoreUnknown is not set"
        ))),
        _ => {
            given.pod = namespace
                .zip(name)
                .map(|(namespace, name)| format!("{namespace}/{name}"));
            Ok(given)
        }
    }
}

#[cfg(test)]
mod tests;
