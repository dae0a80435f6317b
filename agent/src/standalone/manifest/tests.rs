use super::*;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: busybox
";

#[track_caller]
fn check_error(text: &str, want: &str) {
    let error = parse(text).expect_err("accepted").to_string();
    assert!(
        error.starts_with(want),
        "{error}\ndoes not start with\n{want}"
    );
    assert!(!error.contains('\n'), "more than one line: {error}");
}

#[test]
fn every_document_of_a_file() {
    let service = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}], selector: {app: web}}
";
    let text = format!("# two\n---{POD}---{service}---\n");
    let objects = parse(&text).unwrap();
    let [Object::Pod(pod), Object::Service(service)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(service.metadata.namespace.as_deref(), Some("shop"));
}

#[test]
fn json_and_lists() {
    let text = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}]}"#;
    assert!(matches!(
        parse(text).unwrap().as_slice(),
        [Object::ConfigMap(_)]
    ));
}

#[test]
fn plain_text_of_a_secret_becomes_data() {
    let text =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\ndata: {c: ZA==}";
    let objects = parse(text).unwrap();
    let [Object::Secret(secret)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    let data = secret.data.as_ref().unwrap();
    assert_eq!(
        (data["a"].0.as_slice(), data["c"].0.as_slice()),
        (&b"b"[..], &b"d"[..])
    );
}

#[test]
fn file_modes_are_octal() {
    let text = POD.to_owned() + "  volumes: [{name: v, configMap: {name: c, defaultMode: 0440}}]\n";
    let objects = parse(&text).unwrap();
    let [Object::Pod(pod)] = objects.as_slice() else {
        panic!("{objects:?}")
    };
    let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
    assert_eq!(
        volumes[0].config_map.as_ref().unwrap().default_mode,
        Some(0o440)
    );
}

#[test]
fn a_wrong_field_is_named_with_its_path() {
    check_error(
        &POD.replace("image:", "imagee:"),
        "Pod default/web: spec.containers[0].imagee: unknown field",
    );
    check_error(
        &POD.replace("spec:", "specs:"),
        "Pod default/web: specs: unknown field",
    );
    check_error(
        &POD.replace("image: busybox", "image: [x]"),
        "Pod default/web: spec.containers[0].image: invalid type",
    );
    check_error(
        &POD.replace("image: busybox", "ports: [{containerPort: http}]"),
        "Pod default/web: spec.containers[0].ports[0].containerPort: invalid type",
    );
}

#[test]
fn what_is_no_object_of_ours_is_refused() {
    check_error("a: b", "document 1: kind: missing");
    check_error("just text", "document 1: kind: missing");
    check_error(
        &POD.replace("kind: Pod", "kind: Pods"),
        "Pods default/web: kind: \"Pods\" is none",
    );
    check_error(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}",
        "Deployment default/d: apiVersion: \"apps/v1\" is none of Pod, Service",
    );
    check_error("a: [", "file: not YAML");
    check_error(
        &format!("{POD}---{}", POD.replace("name: web", "name: Web")),
        "Pod default/Web: metadata.name",
    );
}
