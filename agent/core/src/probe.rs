//! When to probe and what the results mean.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What a probe decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether the other probes may begin; failure ends the container.
    Startup,
    /// Whether the container may live on.
    Liveness,
    /// Whether the container gets traffic.
    Readiness,
}

impl ProbeKind {
    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }

    /// The same at the start of a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// The probes of a container.
pub fn probes(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    [
        (ProbeKind::Startup, container.startup_probe.as_ref()),
        (ProbeKind::Liveness, container.liveness_probe.as_ref()),
        (ProbeKind::Readiness, container.readiness_probe.as_ref()),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| Some((kind, probe?)))
}

/// A probe's numbers, with the API's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the container's start to the first run.
    pub initial_delay: Duration,
    /// From run to run.
    pub period: Duration,
    /// Of one run.
    pub timeout: Duration,
    /// Successes in a row that change the verdict to good.
    pub success_threshold: u32,
    /// Failures in a row that change the verdict to bad.
    pub failure_threshold: u32,
}

impl From<&Probe> for Timing {
    fn from(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            let given = value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0);
            Duration::from_secs(given.unwrap_or(default))
        };
        let count = |value: Option<i32>, default: u32| {
            value
                .and_then(|v| u32::try_from(v).ok())
                .filter(|v| *v > 0)
                .unwrap_or(default)
        };
        Self {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
        }
    }
}

/// Counts results in a row.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    timing: Timing,
    last: Option<bool>,
    run: u32,
}

impl Verdict {
    /// Nothing seen yet.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            last: None,
            run: 0,
        }
    }

    /// Notes one result; the verdict, once a threshold is reached.
    pub fn note(&mut self, success: bool) -> Option<bool> {
        self.run = if self.last == Some(success) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(success);
        let threshold = if success {
            self.timing.success_threshold
        } else {
            self.timing.failure_threshold
        };
        (self.run >= threshold).then_some(success)
    }
}

/// A port by number, or by the name of one of the container's ports.
pub fn port(container: &Container, port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok().filter(|p| *p > 0),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|p| p.name.as_ref() == Some(name));
            let number = named
                .map(|p| p.container_port)
                .or_else(|| name.parse().ok())?;
            u16::try_from(number).ok().filter(|p| *p > 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults() {
        let timing = Timing::from(&Probe::default());
        assert_eq!(timing.period, Duration::from_secs(10));
        assert_eq!(timing.timeout, Duration::from_secs(1));
        assert_eq!((timing.success_threshold, timing.failure_threshold), (1, 3));
    }

    #[test]
    fn thresholds_count_in_a_row() {
        let probe = Probe {
            success_threshold: Some(2),
            ..Probe::default()
        };
        let mut verdict = Verdict::new(Timing::from(&probe));
        let got: Vec<_> = [
            false, false, true, false, false, false, false, true, true, true,
        ]
        .map(|result| verdict.note(result))
        .into();
        let bad = Some(false);
        let good = Some(true);
        assert_eq!(
            got,
            [None, None, None, None, None, bad, bad, None, good, good]
        );
    }

    #[test]
    fn ports_by_number_and_name() {
        let container: Container = serde_json::from_value(
            json!({"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}),
        )
        .unwrap();
        for (value, want) in [
            (IntOrString::Int(80), Some(80)),
            (IntOrString::Int(0), None),
            (IntOrString::Int(70_000), None),
            (IntOrString::String("http".into()), Some(8080)),
            (IntOrString::String("81".into()), Some(81)),
            (IntOrString::String("none".into()), None),
        ] {
            assert_eq!(port(&container, &value), want, "{value:?}");
        }
    }
}
