//! A kernel that is not one, and does not always do what it is told.

use std::collections::BTreeMap;
use std::fmt;

use crate::backend::{Backend, BackendError, Retry};
use crate::desired::{DesiredState, Source, Verdict};

/// A backend in memory that fails a share of its steps, leaving the rest undone.
///
/// Same seed, same faults: a failed test names the seed in the error text.
#[derive(Clone, Debug)]
pub struct Fake {
    state: FakeRendered,
    seed: u64,
    random: u64,
    fault_percent: u64,
    /// How many steps have failed so far.
    pub faults: usize,
}

/// One line per frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FakeRendered(BTreeMap<String, String>);

impl fmt::Display for FakeRendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (frontend, rest) in &self.0 {
            writeln!(f, "{frontend} {rest}")?;
        }
        Ok(())
    }
}

impl Fake {
    /// Fails `fault_percent` of its steps (0 to 100), chosen by `seed`.
    pub fn new(seed: u64, fault_percent: u64) -> Self {
        // The generator stands still at 0.
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self {
            state: FakeRendered::default(),
            seed,
            random,
            fault_percent,
            faults: 0,
        }
    }

    /// What the fake kernel holds, faults aside.
    pub fn state(&self) -> &FakeRendered {
        &self.state
    }

    /// From now on nothing fails.
    pub fn heal(&mut self) {
        self.fault_percent = 0;
    }

    fn step(&mut self, what: &str) -> Result<(), BackendError> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        if self.random % 100 >= self.fault_percent {
            return Ok(());
        }
        self.faults += 1;
        let text = format!("{what} (fault {} of seed {})", self.faults, self.seed);
        Err(BackendError::new(text, Retry::Now))
    }
}

fn shown(verdict: Verdict<'_>) -> String {
    let (endpoints, masquerade) = match verdict {
        Verdict::Refuse => return "refuse".to_owned(),
        Verdict::Drop => return "drop".to_owned(),
        Verdict::Answer {
            endpoints,
            masquerade,
        } => (endpoints, masquerade),
    };
    let star = |local| if local { "*" } else { "" };
    let list: Vec<String> = endpoints
        .iter()
        .map(|e| format!("{}{}", e.addr, star(e.local)))
        .collect();
    format!(
        "{}{}",
        list.join(","),
        if masquerade { " masq" } else { "" }
    )
}

impl Backend for Fake {
    type Rendered = FakeRendered;

    fn name(&self) -> &'static str {
        "fake"
    }

    fn render(&self, desired: &DesiredState) -> FakeRendered {
        let mut lines = BTreeMap::new();
        for half in [&desired.v4, &desired.v6] {
            for (name, port) in &half.services {
                for frontend in &port.frontends {
                    let verdict = |source| shown(half.verdict(port, frontend, source));
                    let (pod, outside) = (verdict(Source::Pod), verdict(Source::Outside));
                    let text = if pod == outside {
                        pod
                    } else {
                        format!("{pod} | from outside {outside}")
                    };
                    lines.insert(frontend.to_string(), format!("-> {text} ({name})"));
                }
            }
        }
        FakeRendered(lines)
    }

    async fn read_back(&mut self) -> Result<FakeRendered, BackendError> {
        self.step("read back")?;
        Ok(self.state.clone())
    }

    async fn apply(
        &mut self,
        have: &FakeRendered,
        want: &FakeRendered,
    ) -> Result<(), BackendError> {
        for (key, value) in &want.0 {
            if have.0.get(key) != Some(value) {
                self.step(&format!("write {key}"))?;
                self.state.0.insert(key.clone(), value.clone());
            }
        }
        for key in have.0.keys().filter(|key| !want.0.contains_key(*key)) {
            self.step(&format!("delete {key}"))?;
            self.state.0.remove(key);
        }
        Ok(())
    }

    async fn remove_all(&mut self) -> Result<(), BackendError> {
        self.step("remove all")?;
        self.state.0.clear();
        Ok(())
    }
}
