//! An error with all its causes, for the one place that logs it.

use std::error::Error;
use std::fmt;

/// Shows an error and its sources, separated by colons.
///
/// A source whose text the shown part ends in already is left out: some crates
/// repeat it in their own Display.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.to_string();
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            if !shown.ends_with(&text) {
                shown.push_str(": ");
                shown.push_str(&text);
            }
            next = error.source();
        }
        f.write_str(&shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct E(&'static str, #[source] Option<Box<E>>);

    #[test]
    fn causes_follow_and_repetitions_do_not() {
        let inner = E("no route", None);
        let middle = E("connect: no route", Some(Box::new(inner)));
        let outer = E("list services", Some(Box::new(middle)));
        assert_eq!(
            Chain(&outer).to_string(),
            "list services: connect: no route"
        );
    }
}
