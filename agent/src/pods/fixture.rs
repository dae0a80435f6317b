//! What the tests of this module share: pods, and a runtime that never answers.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::*;
use crate::standalone::Standalone;
use crate::volumes::VolumesConfig;

pub(super) struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Of a manager that has nothing yet.
    pub(super) fn shared(&self) -> Arc<Shared> {
        let path = |name: &str| self.directory.path().join(name);
        let config = PodsConfig {
            node_name: "n1".into(),
            node_ips: vec!["10.0.0.1".parse().unwrap()],
            pods_dir: path("pods"),
            pod_log_dir: path("logs"),
            log_records_dir: path("records"),
            cgroup_root: "/".into(),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            resolv_conf: path("resolv.conf"),
            max_parallel_pulls: 1,
        };
        let cri = CriClient::new(&format!("unix://{}", path("no.sock").display())).unwrap();
        let (events, _writer) = crate::events::channel("n1");
        let objects = Standalone::for_tests(self.directory.path()).objects(events);
        let volumes = VolumesConfig {
            pods_dir: path("pods"),
        };
        let volumes = Arc::new(Volumes::new(volumes, Arc::clone(&objects)));
        PodManager::new(config, cri, objects, volumes).shared
    }
}

/// With its UID for a name.
pub(super) fn pod(uid: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("default".into());
    pod.metadata.name = Some(uid.into());
    pod.metadata.uid = Some(uid.into());
    pod.spec = Some(PodSpec {
        containers: vec![Container {
            name: "a".into(),
            image: Some("i:1".into()),
            ..Container::default()
        }],
        ..PodSpec::default()
    });
    pod
}
