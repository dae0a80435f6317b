//! The forms of names: `apimachinery/pkg/util/validation` and `core/validation`.

/// RFC 1123 as Kubernetes reads it.
pub fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label_text)
}

/// One label of it, 63 characters at most.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_label_text(name)
}

fn is_label_text(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// The name of a port (RFC 6335, section 5.1): a label of 15 characters at most, with
/// a letter and without `--`.
pub(super) fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && is_label_text(name)
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && !name.contains("--")
}

/// The name of an environment variable: printable ASCII without `=`, as the API has it
/// since Kubernetes 1.34 (KEP-4369).
pub(super) fn is_env_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=')
}

/// A key of a ConfigMap or Secret, which becomes a file's name.
pub(super) fn is_data_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= 253
        && key != "."
        && !key.starts_with("..")
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_valid: fn(&str) -> bool, good: &[&str], bad: &[&str]) {
        for name in good {
            assert!(is_valid(name), "{name:?}");
        }
        for name in bad {
            assert!(!is_valid(name), "{name:?}");
        }
    }

    #[test]
    fn forms() {
        let long = "a".repeat(64);
        check(
            is_dns_label,
            &["a", "a-1", "0"],
            &["", "-a", "a-", "A", "a.b", "a_b", "../x", &long],
        );
        let longest = [&long[..63]; 4].join(".");
        check(
            is_dns_subdomain,
            &["a", "a.b-c.0", &longest[..253]],
            &["", ".", "a..b", "a.", "a/b", "../x", &longest],
        );
        check(
            is_port_name,
            &["http", "8a", "a-b"],
            &["", "80", "a--b", "-a", "a-", "Http", "abcdefghijklmnop"],
        );
        check(
            is_env_name,
            &["A", "a.b", "1", "a b", "_"],
            &["", "A=B", "=", "a\nb", "é", "a\0"],
        );
        check(
            is_data_key,
            &["a", "a.b", ".a", "A_b-c"],
            &["", ".", "..", "..a", "../../x", "a/b", "a b"],
        );
    }
}
