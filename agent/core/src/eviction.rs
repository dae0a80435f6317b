//! How little of a resource is too little: the thresholds of `--eviction-hard`.
//!
//! Kubernetes' "Node-pressure eviction": `SIGNAL<VALUE`, the value being a quantity or a
//! percentage of the whole. This agent reports pressure, so that the scheduler sends no more pods,
//! and keeps that much out of what pods may use; it does not evict.

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity;

/// 100% in thousandths.
const ALL: u64 = 100_000;

/// What must stay free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// This many bytes, or inodes.
    Amount(u64),
    /// This share of all, in thousandths of a percent.
    Milli(u64),
}

impl Reserve {
    /// How much of `whole` that is.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Milli(share) => {
                let part = u128::from(whole) * u128::from(share) / u128::from(ALL);
                u64::try_from(part).unwrap_or(u64::MAX)
            }
        }
    }
}

/// The thresholds that are looked at. The defaults are kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionHard {
    /// `memory.available`: memory that could be had without swapping. 100Mi.
    pub memory: Reserve,
    /// `nodefs.available`: space on the file system of pods' volumes. 10%.
    pub disk: Reserve,
    /// `nodefs.inodesFree`: inodes of that file system. 5%.
    pub inodes: Reserve,
}

impl Default for EvictionHard {
    fn default() -> Self {
        Self {
            memory: Reserve::Amount(100 << 20),
            disk: Reserve::Milli(10_000),
            inodes: Reserve::Milli(5_000),
        }
    }
}

/// What is wrong with the text of a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictionError {
    /// There is no signal or no value.
    #[error("{0:?}: expected SIGNAL<VALUE, such as nodefs.available<10%")]
    Form(String),
    /// No such signal, or one that is not looked at.
    #[error("{0:?}: this agent looks at memory.available, nodefs.available and nodefs.inodesFree")]
    Signal(String),
    /// One of two values would be lost.
    #[error("{0:?} is given twice")]
    Twice(String),
    /// Neither a percentage nor a quantity.
    #[error("{0}: {1:?} is neither a quantity, such as 100Mi, nor a percentage up to 100%")]
    Value(String, String),
}

/// `memory.available<100Mi,nodefs.available<10%`. A signal that is not named keeps its default
/// (kubelet drops it then, which has filled disks); `0` turns one off, and so does `100%`, as there.
impl FromStr for EvictionHard {
    type Err = EvictionError;

    fn from_str(text: &str) -> Result<Self, EvictionError> {
        let mut all = Self::default();
        let mut seen = Vec::new();
        for one in text.split(',').filter(|one| !one.trim().is_empty()) {
            let form = || EvictionError::Form(one.to_owned());
            let (signal, value) = one.split_once('<').ok_or_else(form)?;
            let (signal, value) = (signal.trim(), value.trim());
            let place = match signal {
                "memory.available" => &mut all.memory,
                "nodefs.available" => &mut all.disk,
                "nodefs.inodesFree" => &mut all.inodes,
                _ => return Err(EvictionError::Signal(signal.to_owned())),
            };
            if seen.contains(&signal) {
                return Err(EvictionError::Twice(signal.to_owned()));
            }
            seen.push(signal);
            let bad = || EvictionError::Value(signal.to_owned(), value.to_owned());
            *place = reserve(value).ok_or_else(bad)?;
        }
        Ok(all)
    }
}

fn reserve(value: &str) -> Option<Reserve> {
    if let Some(percent) = value.strip_suffix('%') {
        let is_number = percent.chars().all(|c| c.is_ascii_digit() || c == '.');
        let percent = is_number.then(|| Quantity(percent.to_owned()))?;
        let share = quantity::millis(&percent).ok()?;
        return match share {
            ALL => Some(Reserve::Milli(0)),
            share => (share < ALL).then_some(Reserve::Milli(share)),
        };
    }
    let amount = quantity::bytes(&Quantity(value.to_owned())).ok()?;
    Some(Reserve::Amount(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_keeps_its_default() {
        let found: EvictionHard = "nodefs.available<1%, nodefs.inodesFree<1k".parse().unwrap();
        assert_eq!(found.memory, Reserve::Amount(104_857_600));
        assert_eq!(found.disk, Reserve::Milli(1000));
        assert_eq!(found.inodes, Reserve::Amount(1000));
        assert_eq!("".parse(), Ok(EvictionHard::default()));
        let off: EvictionHard = "memory.available<0".parse().unwrap();
        assert_eq!(off.memory.of(1 << 30), 0);
        assert_eq!(off.disk.of(1000), 100);
        let off: EvictionHard = "nodefs.available<100%".parse().unwrap();
        assert_eq!(off.disk.of(1000), 0);
    }

    #[test]
    fn a_share_is_exact() {
        let half: EvictionHard = "nodefs.available<0.5%".parse().unwrap();
        assert_eq!(half.disk.of(1000), 5);
        let default = EvictionHard::default();
        assert_eq!(default.disk.of(199), 19);
        assert_eq!(default.inodes.of(u64::MAX), u64::MAX / 20);
    }

    #[test]
    fn a_threshold_that_cannot_be_is_named() {
        for (text, named) in [
            (
                "nodefs.available",
                "\"nodefs.available\": expected SIGNAL<VALUE",
            ),
            (
                "imagefs.available<1%",
                "\"imagefs.available\": this agent looks at memory",
            ),
            ("nodefs.available<101%", "nodefs.available: \"101%\""),
            ("nodefs.available<1k%", "\"1k%\""),
            ("nodefs.available<-1%", "\"-1%\""),
            ("memory.available<much", "memory.available: \"much\""),
            ("memory.available<-1", "\"-1\""),
            ("memory.available<1,memory.available<2", "given twice"),
        ] {
            let error = text.parse::<EvictionHard>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
