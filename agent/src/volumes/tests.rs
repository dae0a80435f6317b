use super::*;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PodStatus, Secret, Service};
use serde_json::json;

use crate::objects::{PodEvent, Result as ObjectResult, Token};

/// Has one ConfigMap, `ns/settings`.
struct OneConfigMap;

fn missing<T>(kind: &'static str, namespace: &str, name: &str) -> ObjectResult<T> {
    Err(ObjectError::NotFound {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    })
}

impl Objects for OneConfigMap {
    fn config_map<'a>(
        &'a self,
        ns: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, ObjectResult<ConfigMap>> {
        async move {
            if (ns, name) != ("ns", "settings") {
                return missing("ConfigMap", ns, name);
            }
            let data = [("color".to_owned(), "blue".to_owned())].into();
            Ok(ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            })
        }
        .boxed()
    }

    fn secret<'a>(&'a self, ns: &'a str, name: &'a str) -> BoxFuture<'a, ObjectResult<Secret>> {
        async move { missing("Secret", ns, name) }.boxed()
    }

    fn token<'a>(
        &'a self,
        _: &'a Pod,
        _: Option<&'a str>,
        _: i64,
    ) -> BoxFuture<'a, ObjectResult<Token>> {
        async { missing("ServiceAccount", "ns", "default") }.boxed()
    }

    fn services(&self, _: &str) -> Vec<Service> {
        Vec::new()
    }

    fn node(&self) -> Option<Node> {
        None
    }

    fn write_status<'a>(&'a self, _: &'a Pod, _: PodStatus) -> BoxFuture<'a, ObjectResult<()>> {
        async { Ok(()) }.boxed()
    }

    fn finish_deletion<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, ObjectResult<()>> {
        async { Ok(()) }.boxed()
    }

    fn event(&self, _: PodEvent) {}
}

fn pod(volumes: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1"},
        "spec": {"containers": [], "volumes": volumes}
    }))
    .unwrap()
}

fn volumes(dir: &tempfile::TempDir) -> Volumes {
    Volumes::new(
        VolumesConfig {
            pods_dir: dir.path().into(),
        },
        Arc::new(OneConfigMap),
    )
}

#[tokio::test]
async fn prepares_what_it_can_and_removes_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("keep"), "x").unwrap();
    let volumes = volumes(&dir);
    let pod = pod(&json!([
        {"name": "cfg", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": host.path(), "type": "Directory"}},
    ]));
    let prepared = volumes.prepare(&pod).await.unwrap();
    let path = |name: &str| prepared.by_name[name].path.clone();
    assert_eq!(
        fs::read_to_string(path("cfg").join("color")).unwrap(),
        "blue"
    );
    let mode = fs::metadata(path("scratch")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o777, "whatever the umask");
    assert_eq!(path("host"), host.path());

    fs::write(
        path("scratch").join("data"),
        "kept over a container restart",
    )
    .unwrap();
    assert_eq!(volumes.prepare(&pod).await.unwrap(), prepared, "idempotent");
    assert!(path("scratch").join("data").exists());

    assert_eq!(volumes.list_uids().unwrap(), ["uid-1"]);
    volumes.teardown("uid-1").await.unwrap();
    volumes.teardown("uid-1").await.unwrap();
    assert!(volumes.list_uids().unwrap().is_empty());
    assert!(
        host.path().join("keep").exists(),
        "a hostPath is never removed"
    );
}

#[tokio::test]
async fn a_failure_names_the_volume_and_the_object() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(&json!([{"name": "cfg", "configMap": {"name": "nope"}}]));
    let error = volumes(&dir).prepare(&pod).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MountVolume.SetUp failed for volume \"cfg\""
    );
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "ConfigMap ns/nope not found");
}

#[tokio::test]
async fn an_optional_reference_may_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(&json!([{"name": "cfg", "configMap": {"name": "nope", "optional": true}}]));
    let prepared = volumes(&dir).prepare(&pod).await.unwrap();
    let names = fs::read_dir(&prepared.by_name["cfg"].path).unwrap();
    assert!(
        names
            .map(|entry| entry.unwrap().file_name())
            .all(|name| { name.to_string_lossy().starts_with("..") })
    );
}

#[tokio::test]
async fn other_kinds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(&json!([{"name": "n", "nfs": {"server": "s", "path": "/"}}]));
    let error = volumes(&dir).prepare(&pod).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "volume kind is not supported");
}
