//! Image names and pull policies.

/// When an image is fetched from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// Before every start.
    Always,
    /// If the node has none.
    IfNotPresent,
    /// Never.
    Never,
}

/// The policy, with the API's default where none is given: Always for the tag
/// `latest` or no tag, else IfNotPresent.
pub fn pull_policy(policy: Option<&str>, image: &str) -> PullPolicy {
    match policy {
        Some("Always") => PullPolicy::Always,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        Some("Never") => PullPolicy::Never,
        _ => {
            let latest = !image.contains('@') && matches!(tag(image), None | Some("latest"));
            if latest {
                PullPolicy::Always
            } else {
                PullPolicy::IfNotPresent
            }
        }
    }
}

fn tag(image: &str) -> Option<&str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').map(|(_, tag)| tag)
}

/// The full reference that the runtime is asked for: registry, path and tag are
/// always there (`busybox` is `docker.io/library/busybox:latest`). `None` for what
/// is no image name.
pub fn normalized(image: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if image.is_empty() || !image.chars().all(valid) || image.starts_with(['/', ':', '@', '-', '.'])
    {
        return None;
    }
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("docker.io", rest),
    };
    let library = host == "docker.io" && !path.contains('/');
    let path = if library {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    let name = path.split(':').next().unwrap_or_default();
    if name.is_empty() || name.ends_with('/') || name.chars().any(|c| c.is_ascii_uppercase()) {
        return None;
    }
    let suffix = match (digest, tag(&path)) {
        (Some(digest), _) => format!("@{digest}"),
        (None, Some("")) => return None,
        (None, Some(_)) => String::new(),
        (None, None) => ":latest".to_owned(),
    };
    Some(format!("{host}/{path}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        for (policy, image, want) in [
            (None, "busybox", PullPolicy::Always),
            (None, "busybox:latest", PullPolicy::Always),
            (None, "localhost:5000/busybox", PullPolicy::Always),
            (None, "localhost:5000/busybox:1", PullPolicy::IfNotPresent),
            (None, "busybox@sha256:00", PullPolicy::IfNotPresent),
            (Some("Never"), "busybox", PullPolicy::Never),
            (Some("IfNotPresent"), "busybox", PullPolicy::IfNotPresent),
            (Some("Always"), "busybox:1", PullPolicy::Always),
        ] {
            assert_eq!(pull_policy(policy, image), want, "{policy:?} {image}");
        }
    }

    #[test]
    fn names() {
        for (image, want) in [
            ("busybox", Some("docker.io/library/busybox:latest")),
            ("me/app:1", Some("docker.io/me/app:1")),
            (
                "registry.k8s.io/pause:3.10",
                Some("registry.k8s.io/pause:3.10"),
            ),
            ("localhost/x", Some("localhost/x:latest")),
            ("host:5000/a/b", Some("host:5000/a/b:latest")),
            ("r.io/a@sha256:00", Some("r.io/a@sha256:00")),
            ("", None),
            ("Busybox", None),
            ("a b", None),
            ("busybox:", None),
            ("/x", None),
            ("host:5000/", None),
        ] {
            assert_eq!(normalized(image).as_deref(), want, "{image}");
        }
    }
}
