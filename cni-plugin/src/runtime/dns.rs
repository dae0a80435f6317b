//! How the pod shall resolve names. Nothing of an interface; it is handed on
//! in the result, where the runtime and later plugins look for it.

use super::{RUNTIME, lower_case};
use crate::config::{Object, known_in_any_case, optional};
use crate::error::Error;
use crate::result::Dns;

const KEYS: &[&str] = &["servers", "searches", "options"];

pub(super) fn parse(all: &Object, key: &str) -> Result<Dns, Error> {
    let path = format!("{RUNTIME}.{key}");
    let given: Object = optional(all, key, &path)?.unwrap_or_default();
    known_in_any_case(&given, &format!("{path}."), KEYS)?;
    let given = lower_case(&given);
    let list = |name: &str| -> Result<Vec<String>, Error> {
        Ok(optional(&given, name, &format!("{path}.{name}"))?.unwrap_or_default())
    };
    Ok(Dns {
        nameservers: list("servers")?,
        domain: None,
        search: list("searches")?,
        options: list("options")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_spellings_become_a_results() {
        let go = json!({"Servers": ["10.96.0.10"], "Searches": ["svc"], "Options": null});
        let camel = json!({"servers": ["10.96.0.10"], "searches": ["svc"]});
        for given in [go, camel] {
            let all = Object::from_iter([("dns".to_owned(), given)]);
            let dns = parse(&all, "dns").unwrap();
            assert_eq!(dns.nameservers, ["10.96.0.10"]);
            assert_eq!((dns.search.len(), dns.options.len()), (1, 0));
        }
        let all = Object::from_iter([("dns".to_owned(), json!({"servers": "x"}))]);
        assert_eq!(parse(&all, "dns").unwrap_err().code(), 7);
    }
}
