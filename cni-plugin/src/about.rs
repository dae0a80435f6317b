//! The `VERSION` verb, and the text for people who call the binary by hand.

use serde_json::{Value, json};

use crate::version::Version;

/// Answer to `VERSION`. Runtimes send `{"cniVersion": ...}` or nothing.
pub(crate) fn version(stdin: &[u8]) -> Value {
    let asked = serde_json::from_slice::<Value>(stdin)
        .ok()
        .and_then(|conf| Version::parse(conf.get("cniVersion")?.as_str()?).ok());
    json!({
        "cniVersion": asked.unwrap_or(Version::NEWEST).as_str(),
        "supportedVersions": Version::SUPPORTED.map(Version::as_str),
    })
}

pub(crate) fn text() -> String {
    format!(
        "Seaway CNI plugin {}\n\
         Called by container runtimes; CNI_COMMAND is not set.\n\
         CNI protocol versions supported: {}\n\
         By hand: seaway-cni repair, seaway-cni sweep",
        env!("CARGO_PKG_VERSION"),
        Version::list()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_echoed_when_we_speak_it() {
        assert_eq!(version(br#"{"cniVersion":"0.4.0"}"#)["cniVersion"], "0.4.0");
        for stdin in [&b""[..], b"{", br#"{"cniVersion":"9.9.9"}"#] {
            assert_eq!(
                version(stdin),
                json!({
                    "cniVersion": "1.1.0",
                    "supportedVersions": [
                        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"
                    ],
                })
            );
        }
    }
}
