//! Pull secrets: which credentials are tried for an image.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;

/// One way to log in to a registry.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "lowercase")]
pub struct Credentials {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// `user:password` in base64, instead of the two.
    pub auth: String,
    /// Token, instead of a password.
    #[serde(rename = "identitytoken")]
    pub identity_token: String,
    /// The registry these are for.
    #[serde(skip)]
    pub server: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    auths: BTreeMap<String, Credentials>,
}

/// The credentials in `secrets` that fit `image` (a full reference), the most
/// specific first. Secrets that are not of a docker kind are passed over.
pub fn credentials(secrets: &[Secret], image: &str) -> Vec<Credentials> {
    let mut found: Vec<(usize, Credentials)> = Vec::new();
    for (server, credentials) in secrets.iter().flat_map(auths) {
        let location = location(&server);
        if fits(&location, image) {
            found.push((
                location.len(),
                Credentials {
                    server,
                    ..credentials
                },
            ));
        }
    }
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found
        .into_iter()
        .map(|(_, credentials)| credentials)
        .collect()
}

fn auths(secret: &Secret) -> BTreeMap<String, Credentials> {
    let data = |key: &str| {
        secret
            .data
            .as_ref()?
            .get(key)
            .map(|bytes| bytes.0.as_slice())
    };
    if let Some(json) = data(".dockerconfigjson") {
        return serde_json::from_slice::<DockerConfig>(json)
            .map(|c| c.auths)
            .unwrap_or_default();
    }
    data(".dockercfg")
        .and_then(|json| serde_json::from_slice(json).ok())
        .unwrap_or_default()
}

/// `https://index.docker.io/v1/` is how Docker writes its own registry.
fn location(server: &str) -> String {
    let bare = server
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let bare = bare.trim_end_matches('/');
    let bare = bare
        .strip_suffix("/v1")
        .or_else(|| bare.strip_suffix("/v2"))
        .unwrap_or(bare);
    match bare {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_owned(),
    }
}

/// `location` is the image's host, or that and a leading part of its path.
/// `*.example.com` stands for one label.
fn fits(location: &str, image: &str) -> bool {
    let (host, path) = location.split_once('/').unwrap_or((location, ""));
    let (image_host, image_path) = image.split_once('/').unwrap_or((image, ""));
    let same_host = match host.strip_prefix("*.") {
        Some(domain) => image_host
            .split_once('.')
            .is_some_and(|(_, rest)| rest == domain),
        None => host == image_host,
    };
    same_host && (path.is_empty() || image_path.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_comes_first_and_others_do_not() {
        let json = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHVi"},
            "r.io": {"username": "wide"}, "r.io/team": {"username": "narrow"},
            "*.corp.example": {"username": "glob", "password": "p"}}}"#;
        let secret = Secret {
            data: Some(
                [(
                    ".dockerconfigjson".to_owned(),
                    k8s_openapi::ByteString(json.as_bytes().to_vec()),
                )]
                .into(),
            ),
            ..Secret::default()
        };
        let other = Secret::default();
        for (image, want) in [
            ("r.io/team/app:1", vec!["narrow", "wide"]),
            ("r.io/other:1", vec!["wide"]),
            ("a.corp.example/x:1", vec!["glob"]),
            ("a.b.corp.example/x:1", vec![]),
            ("elsewhere.io/x:1", vec![]),
        ] {
            let got = credentials(&[other.clone(), secret.clone()], image);
            let users: Vec<_> = got.iter().map(|c| c.username.as_str()).collect();
            assert_eq!(users, want, "{image}");
        }
        let hub = credentials(&[secret], "docker.io/library/busybox:latest");
        assert_eq!(hub[0].auth, "aHVi");
        assert!(!format!("{hub:?}").contains("aHVi"));
    }
}
