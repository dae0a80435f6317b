use std::fs;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::Event;
use seaway_agent_core::eviction::EvictionHard;

use super::*;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, \
                   spec: {containers: [{name: a, image: 'i:1'}]}}";

impl Standalone {
    /// With its state below `path`.
    pub(crate) fn for_tests(path: &Path) -> Self {
        let config = NodeConfig {
            name: "n1".into(),
            ips: vec!["10.0.0.1".parse().unwrap()],
            runtime_socket: "/c.sock".into(),
            root_dir: path.join("root"),
            pod_log_dir: path.join("logs"),
            cni_cache_dir: std::path::PathBuf::from("/nowhere"),
            cgroup_root: "/".into(),
            run_dir: path.join("run"),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            max_pods: 110,
            eviction_hard: EvictionHard::default(),
            healthz_bind: None,
        };
        let cidr = |text: &str| text.parse().unwrap();
        Self::new(config, cidr("10.244.0.0/24"), cidr("10.96.0.0/24"))
    }
}

struct Fixture {
    manifests: tempfile::TempDir,
    state: tempfile::TempDir,
    standalone: Arc<Standalone>,
    shutdown: CancellationToken,
}

impl Fixture {
    fn new() -> Self {
        let (manifests, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let standalone = Standalone::for_tests(state.path());
        Self {
            manifests,
            state,
            standalone: Arc::new(standalone),
            shutdown: CancellationToken::new(),
        }
    }

    /// Another agent with the same state.
    fn restart(&mut self) {
        self.standalone = Arc::new(Standalone::for_tests(self.state.path()));
        self.shutdown = CancellationToken::new();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.manifests.path().join(name), text).unwrap();
    }

    fn follow(&self) -> tokio::task::JoinHandle<Result<(), DirectoryError>> {
        let (standalone, shutdown) = (Arc::clone(&self.standalone), self.shutdown.clone());
        let path = self.manifests.path().to_owned();
        tokio::spawn(async move { standalone.follow(&path, shutdown).await })
    }
}

async fn next(pods: &mut Watch<Pod>) -> Event<Pod> {
    let next = tokio::time::timeout(Duration::from_secs(10), pods.next()).await;
    next.expect("something happens").unwrap().unwrap()
}

#[tokio::test]
async fn files_become_pods_and_go() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", POD);
    let mut pods = fixture.standalone.pods();
    let following = fixture.follow();
    assert!(matches!(next(&mut pods).await, Event::Init));
    let Event::InitApply(first) = next(&mut pods).await else {
        panic!("no pod")
    };
    assert!(matches!(next(&mut pods).await, Event::InitDone));
    fixture.write("web.yaml", &POD.replace("i:1", "i:2"));
    let Event::Apply(ending) = next(&mut pods).await else {
        panic!("not changed")
    };
    assert_eq!(ending.metadata.uid, first.metadata.uid);
    assert!(ending.metadata.deletion_timestamp.is_some());
    let (events, _writer) = crate::events::channel("n1");
    fixture
        .standalone
        .objects(events)
        .finish_deletion(&ending)
        .await
        .unwrap();
    assert!(matches!(next(&mut pods).await, Event::Delete(_)));
    let Event::Apply(second) = next(&mut pods).await else {
        panic!("no successor")
    };
    assert_ne!(second.metadata.uid, first.metadata.uid);
    fixture.shutdown.cancel();
    following.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_wrong_file_leaves_its_last_version_and_the_rest_running() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", POD);
    let mut pods = fixture.standalone.pods();
    let following = fixture.follow();
    for _ in 0..3 {
        next(&mut pods).await;
    }
    fixture.write("web.yaml", &POD.replace("image:", "imagee:"));
    fixture.write("other.yaml", &POD.replace("name: web", "name: other"));
    let Event::Apply(other) = next(&mut pods).await else {
        panic!("no other pod")
    };
    assert_eq!(other.metadata.name.as_deref(), Some("other"));
    let listing = fixture.standalone.local_source().listing();
    assert_eq!(listing.pods.len(), 2);
    assert!(
        listing
            .pods
            .iter()
            .all(|pod| pod.metadata.deletion_timestamp.is_none())
    );
    fixture.shutdown.cancel();
    following.await.unwrap().unwrap();
}

#[tokio::test]
async fn nothing_is_told_before_the_directory_has_been_read() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", POD);
    let mut pods = fixture.standalone.pods();
    let (_sender, runtime) = tokio_watch::channel(RuntimeStatus::default());
    let (node, shutdown) = (Arc::clone(&fixture.standalone), fixture.shutdown.clone());
    let keeping = tokio::spawn(async move { node.keep_node(runtime, shutdown).await });
    tokio::task::yield_now().await;
    assert!(
        futures::poll!(pods.next()).is_pending(),
        "an empty list would end every pod"
    );
    let following = fixture.follow();
    assert!(matches!(next(&mut pods).await, Event::Init));
    assert!(matches!(next(&mut pods).await, Event::InitApply(_)));
    assert!(matches!(next(&mut pods).await, Event::InitDone));
    fixture.shutdown.cancel();
    following.await.unwrap().unwrap();
    keeping.await.unwrap();
}

/// The pods of the first list.
async fn listed(pods: &mut Watch<Pod>) -> Vec<Pod> {
    let mut listed = Vec::new();
    loop {
        match next(pods).await {
            Event::Init => {}
            Event::InitApply(pod) => listed.push(pod),
            Event::InitDone => return listed,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_restart_beside_a_manifest_that_is_invalid_by_now_changes_nothing() {
    let mut fixture = Fixture::new();
    fixture.write("web.yaml", POD);
    let mut pods = fixture.standalone.pods();
    let following = fixture.follow();
    let before = listed(&mut pods).await;
    fixture.shutdown.cancel();
    following.await.unwrap().unwrap();
    for invalid in [POD.replace("image:", "imagee:"), "{".to_owned()] {
        fixture.restart();
        fixture.write("web.yaml", &invalid);
        let mut pods = fixture.standalone.pods();
        let following = fixture.follow();
        let uids = |pods: &[Pod]| pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
        let (now, then): (Vec<_>, Vec<_>) = (uids(&listed(&mut pods).await), uids(&before));
        assert_eq!(now, then);
        let refused = fixture.standalone.local_source().listing().refused;
        assert!(refused[0].has_valid_version, "{refused:?}");
        fixture.shutdown.cancel();
        following.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_writer_that_pauses_ends_no_pod() {
    let fixture = Fixture::new();
    fixture.write("web.yaml", POD);
    let mut pods = fixture.standalone.pods();
    let following = fixture.follow();
    listed(&mut pods).await;
    let mut file = fs::File::create(fixture.manifests.path().join("web.yaml")).unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(500), pods.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    std::io::Write::write_all(&mut file, POD.replace("i:1", "i:2").as_bytes()).unwrap();
    drop(file);
    let Event::Apply(ending) = next(&mut pods).await else {
        panic!("not changed")
    };
    assert!(ending.metadata.deletion_timestamp.is_some());
    fixture.shutdown.cancel();
    following.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_directory_that_is_not_there_ends_it() {
    let fixture = Fixture::new();
    let path = fixture.manifests.path().join("missing");
    let error = fixture
        .standalone
        .follow(&path, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn tokens_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let (events, _writer) = crate::events::channel("n1");
    let objects = fixture.standalone.objects(events);
    let error = objects
        .token(&Pod::default(), None, 3600)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("not available from a directory of manifests"),
        "{error}"
    );
}

#[tokio::test]
async fn nobody_misses_the_dns_of_a_cluster() {
    let fixture = Fixture::new();
    let (events, writer) = crate::events::channel("n1");
    let objects = fixture.standalone.objects(events);
    for reason in ["MissingClusterDNS", "FailedMount"] {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(reason.into());
        objects.event(crate::objects::PodEvent {
            pod,
            field_path: None,
            event_type: crate::objects::EventType::Warning,
            reason,
            message: String::new(),
        });
    }
    drop(writer);
    let warnings = format!("{:?}", fixture.standalone.shared.warnings());
    assert!(!warnings.contains("MissingClusterDNS"), "{warnings}");
    assert!(warnings.contains("FailedMount"), "{warnings}");
}
