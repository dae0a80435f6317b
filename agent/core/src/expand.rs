//! `$(NAME)` in commands, arguments and environment values.
//!
//! `$$` is a literal `$`; a reference to an unknown name stays as it is
//! (Kubernetes API, `Container.command`).

/// Expands references through `lookup`.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = reference(after) {
            if let Some(value) = lookup(name) {
                out.push_str(&value);
            } else {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn reference(after: &str) -> Option<(&str, &str)> {
    let inner = after.strip_prefix('(')?;
    inner.split_once(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("$(A)".to_owned()),
            "E" => Some(String::new()),
            _ => None,
        };
        for (text, want) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(B)", "$(A)"),
            ("$(E)", ""),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("cost: 5$", "cost: 5$"),
            ("$()", "$()"),
            ("ü$(A)ü", "ü1ü"),
        ] {
            assert_eq!(expand(text, lookup), want, "{text}");
        }
    }
}
