//! Versions of the CNI specification.

use std::fmt;

use crate::error::Error;

/// A version of the specification whose result form we speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    /// Oldest first. Before 0.3.0 a result held one address of each family and
    /// no interface.
    pub(crate) const SUPPORTED: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];
    pub(crate) const NEWEST: Self = Self::V1_1_0;

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        Self::SUPPORTED
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| Error::Version {
                requested: text.to_owned(),
            })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// For people: `0.1.0, 0.2.0, ...`.
    pub(crate) fn list() -> String {
        Self::SUPPORTED.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
