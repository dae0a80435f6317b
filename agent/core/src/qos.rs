//! Quality of service: class, cgroup, shares, limits and OOM score.
//!
//! Numbers are those of the kernel interfaces that kubelet established; see
//! Kubernetes' "Node-pressure eviction" and "Configure Quality of Service".

use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::{quantity, spec};

/// The pod's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Every container has CPU and memory limits equal to its requests.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// None.
    BestEffort,
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How the runtime names cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Paths.
    #[default]
    Cgroupfs,
    /// systemd slices.
    Systemd,
}

/// What the kernel is told about a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxResources {
    /// Microseconds; 0 where there is no CPU limit.
    pub cpu_period: i64,
    /// Microseconds per period; 0 where there is no CPU limit.
    pub cpu_quota: i64,
    /// Relative weight.
    pub cpu_shares: i64,
    /// Bytes; 0 is none.
    pub memory_limit: i64,
    /// −1000 to 1000.
    pub oom_score_adj: i64,
}

impl LinuxResources {
    /// With an OOM score that a process may be given where none below `floor` is
    /// allowed: a pod that is killed too early is better than one that cannot start.
    #[must_use]
    pub fn with_oom_floor(mut self, floor: i64) -> Self {
        self.oom_score_adj = self.oom_score_adj.max(floor);
        self
    }
}

/// No pod's `oom_score_adj` is below this.
pub const LOWEST_OOM_SCORE_ADJ: i64 = -997;

const PERIOD_MICROS: u64 = 100_000;
const MIN_QUOTA_MICROS: u64 = 1_000;
const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;

fn amount(container: &Container, limits: bool, resource: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let list = if limits {
        resources.limits.as_ref()
    } else {
        resources.requests.as_ref()
    };
    list?
        .get(resource)
        .filter(|q| quantity::millis(q) != Ok(0))
        .cloned()
}

/// The request, or the limit where there is only one, as the API defaults it.
fn request(container: &Container, resource: &str) -> Option<Quantity> {
    amount(container, false, resource).or_else(|| amount(container, true, resource))
}

/// Requested CPU in thousandths.
pub fn cpu_request(container: &Container) -> u64 {
    request(container, "cpu")
        .and_then(|q| quantity::millis(&q).ok())
        .unwrap_or(0)
}

/// Requested memory in bytes.
pub fn memory_request(container: &Container) -> u64 {
    request(container, "memory")
        .and_then(|q| quantity::bytes(&q).ok())
        .unwrap_or(0)
}

/// The class of a pod.
pub fn class(pod: &Pod) -> QosClass {
    let mut any = false;
    let mut guaranteed = true;
    for container in spec::all_containers(pod) {
        for resource in ["cpu", "memory"] {
            let limit = amount(container, true, resource);
            let request = request(container, resource);
            any |= limit.is_some() || request.is_some();
            let equal = match (&limit, &request) {
                (Some(limit), Some(request)) => {
                    quantity::millis(limit) == quantity::millis(request)
                }
                _ => false,
            };
            guaranteed &= equal;
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// The pod's cgroup below `root` (`/` or `/name`), as the runtime's driver names it.
pub fn cgroup_parent(root: &str, driver: CgroupDriver, pod: &Pod) -> String {
    let uid = spec::uid(pod);
    let level = match class(pod) {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    };
    match driver {
        CgroupDriver::Cgroupfs => {
            let root = root.trim_end_matches('/');
            let level = level.map(|level| format!("/{level}")).unwrap_or_default();
            format!("{root}/kubepods{level}/pod{uid}")
        }
        CgroupDriver::Systemd => {
            // The runtime expands dashes into parents: a-b.slice lives in a.slice.
            let root = root.trim_matches('/').replace('/', "-");
            let root = if root.is_empty() {
                root
            } else {
                format!("{root}-")
            };
            let level = level.map(|level| format!("-{level}")).unwrap_or_default();
            format!("{root}kubepods{level}-pod{}.slice", uid.replace('-', "_"))
        }
    }
}

/// What the kernel is told about `container`. `capacity` is the node's memory in
/// bytes, by which the OOM score of a Burstable container is scaled.
pub fn linux_resources(pod: &Pod, container: &Container, capacity: u64) -> LinuxResources {
    let cpu = request(container, "cpu")
        .and_then(|q| quantity::millis(&q).ok())
        .unwrap_or(0);
    let limit = amount(container, true, "cpu").and_then(|q| quantity::millis(&q).ok());
    let memory = amount(container, true, "memory").and_then(|q| quantity::bytes(&q).ok());
    let shares = (cpu.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES);
    let quota =
        limit.map(|millis| (millis.saturating_mul(PERIOD_MICROS) / 1000).max(MIN_QUOTA_MICROS));
    LinuxResources {
        cpu_period: if quota.is_some() {
            signed(PERIOD_MICROS)
        } else {
            0
        },
        cpu_quota: signed(quota.unwrap_or(0)),
        cpu_shares: signed(shares),
        memory_limit: signed(memory.unwrap_or(0)),
        oom_score_adj: oom_score_adj(pod, container, capacity),
    }
}

fn oom_score_adj(pod: &Pod, container: &Container, capacity: u64) -> i64 {
    const NODE_CRITICAL: i32 = 2_000_001_000;
    let critical = pod.spec.as_ref().and_then(|spec| spec.priority) >= Some(NODE_CRITICAL);
    match class(pod) {
        _ if critical => LOWEST_OOM_SCORE_ADJ,
        QosClass::Guaranteed => LOWEST_OOM_SCORE_ADJ,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = u128::from(memory_request(container));
            let share = (request * 1000)
                .checked_div(u128::from(capacity))
                .unwrap_or(0);
            1000_i64
                .saturating_sub(i64::try_from(share).unwrap_or(1000))
                .clamp(3, 999)
        }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "uid": "a-b"},
            "spec": {"containers": [{"name": "c", "resources": resources}]}
        }))
        .unwrap()
    }

    #[test]
    fn classes_and_cgroups() {
        let rows = [
            (
                serde_json::json!({}),
                QosClass::BestEffort,
                "/n/kubepods/besteffort/poda-b",
            ),
            (
                serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
                QosClass::Guaranteed,
                "/n/kubepods/poda-b",
            ),
            (
                serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}),
                QosClass::Guaranteed,
                "/n/kubepods/poda-b",
            ),
            (
                serde_json::json!({"requests": {"cpu": "1"}}),
                QosClass::Burstable,
                "/n/kubepods/burstable/poda-b",
            ),
            (
                serde_json::json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
                QosClass::Burstable,
                "/n/kubepods/burstable/poda-b",
            ),
        ];
        for (resources, want, cgroup) in rows {
            let pod = pod(resources.clone());
            assert_eq!(class(&pod), want, "{resources}");
            assert_eq!(cgroup_parent("/n", CgroupDriver::Cgroupfs, &pod), cgroup);
        }
        let pod = pod(serde_json::json!({}));
        assert_eq!(
            cgroup_parent("/", CgroupDriver::Systemd, &pod),
            "kubepods-besteffort-poda_b.slice"
        );
        assert_eq!(
            cgroup_parent("/n", CgroupDriver::Systemd, &pod),
            "n-kubepods-besteffort-poda_b.slice"
        );
    }

    #[test]
    fn kernel_numbers() {
        let gib = 1 << 30;
        let of = |resources| {
            let pod = pod(resources);
            linux_resources(&pod, &spec::containers(&pod)[0], 10 * gib)
        };
        let none = of(serde_json::json!({}));
        assert_eq!(
            (none.cpu_shares, none.cpu_quota, none.oom_score_adj),
            (2, 0, 1000)
        );
        let some = of(
            serde_json::json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1500m"}}),
        );
        assert_eq!(
            (some.cpu_shares, some.cpu_quota, some.cpu_period),
            (512, 150_000, 100_000)
        );
        assert_eq!(some.oom_score_adj, 900);
        let tiny = of(serde_json::json!({"limits": {"cpu": "1m", "memory": "1Gi"}}));
        assert_eq!((tiny.cpu_quota, tiny.memory_limit), (1_000, 1 << 30));
        assert_eq!(tiny.oom_score_adj, -997);
    }

    #[test]
    fn oom_scores_are_raised_to_what_is_allowed() {
        for (wanted, floor, want) in [
            (-997, LOWEST_OOM_SCORE_ADJ, -997),
            (-997, -999, -997),
            (-997, 0, 0),
            (3, 0, 3),
            (3, 500, 500),
            (1000, 500, 1000),
        ] {
            let resources = LinuxResources {
                oom_score_adj: wanted,
                ..LinuxResources::default()
            };
            let got = resources.with_oom_floor(floor).oom_score_adj;
            assert_eq!(got, want, "{wanted} with {floor}");
        }
    }
}
