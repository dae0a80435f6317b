//! What holds for a backend that says nothing of its own.

use std::error::Error;

use seaway_proxy_core::backend::{Backend, BackendError};
use seaway_proxy_core::desired::{DesiredState, Family};
use seaway_proxy_core::explain::kernel::{Deviation, Subject};

/// Does what has to be done, and nothing more.
struct Plain;

impl Backend for Plain {
    type Rendered = String;

    fn name(&self) -> &'static str {
        "plain"
    }

    fn render(&self, _: &DesiredState) -> String {
        "all".to_owned()
    }

    async fn read_back(&mut self) -> Result<String, BackendError> {
        Ok(String::new())
    }

    async fn apply(&mut self, _: &String, _: &String) -> Result<(), BackendError> {
        Ok(())
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}

#[test]
fn it_has_no_variants_counts_no_rules_and_notices_nobody() {
    let (some, other) = ("some".to_owned(), "other".to_owned());
    assert_eq!(Plain.variant(), None);
    assert_eq!(Plain.families(), [Family::V4]);
    assert_eq!(Plain.count(&some, &other), []);
    assert!(Plain.unsupported(&DesiredState::default()).is_empty());
    assert!(!Plain.is_watched());
}

#[test]
fn it_renders_and_remembers_all() {
    let beside = Plain.render_beside(&"all".to_owned(), &DesiredState::default());
    assert_eq!(beside, "all");
    assert_eq!(Plain.remember(beside), "all");
}

#[test]
fn its_lines_that_name_an_address_are_shown() -> Result<(), Box<dyn Error>> {
    let have = "10.96.0.1:80/TCP to 10.244.0.5:80\n10.96.0.2:80/TCP to 10.244.0.6:80";
    let want = "10.96.0.1:80/TCP to 10.244.0.7:80\n10.96.0.2:80/TCP to 10.244.0.8:80";
    let subject = Subject {
        target: "10.96.0.1:80".parse()?,
        endpoints: Vec::new(),
    };
    let found = Plain.inspect(&have.to_owned(), &want.to_owned(), &subject);
    assert_eq!(found.holds, ["10.96.0.1:80/TCP to 10.244.0.5:80"]);
    let [difference] = found.differences.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(difference.deviation, Deviation::Different);
    let want = difference.want.as_deref();
    assert_eq!(want, Some("10.96.0.1:80/TCP to 10.244.0.7:80"));
    Ok(())
}
