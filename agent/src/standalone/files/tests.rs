use super::super::cluster_ip::Saved;
use super::super::manifest::parse;
use super::*;

fn files() -> Files {
    restored(BTreeMap::new())
}

fn restored(in_force: BTreeMap<String, File>) -> Files {
    let range = "10.96.0.0/24".parse().unwrap();
    Files::new(Allocator::new(range, Saved::default()), in_force)
}

fn file(documents: &[String]) -> File {
    File {
        objects: parse(&documents.join("\n---\n")).unwrap(),
        modified: Timestamp::UNIX_EPOCH,
    }
}

fn config_map(name: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}")
}

fn service(name: &str, ip: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, \
         spec: {{ports: [{{port: 80}}], clusterIP: '{ip}'}}}}"
    )
}

/// Every object in force with its file, and every refusal.
fn shown(files: &mut Files) -> Vec<String> {
    files.settle();
    let objects = files.objects().map(|(file, _, object)| match object {
        Object::Service(service) => {
            let ip = files.address(service).map(|ip| ip.octets()[3]);
            format!("{file}: {} .{}", object.id(), ip.unwrap_or_default())
        }
        _ => format!("{file}: {}", object.id()),
    });
    let refusals = files.refusals();
    let refusals = refusals.iter().map(|refusal| format!("! {refusal}"));
    objects.chain(refusals).collect()
}

#[test]
fn who_has_a_name_keeps_it() {
    let mut files = files();
    files.offer("b.yaml", file(&[config_map("x")]));
    assert_eq!(shown(&mut files), ["b.yaml: ConfigMap default/x"]);
    files.offer("a.yaml", file(&[config_map("x"), config_map("z")]));
    let want = [
        "b.yaml: ConfigMap default/x",
        "! a.yaml: ConfigMap default/x: is already in b.yaml",
    ];
    assert_eq!(
        shown(&mut files),
        want,
        "a file is taken whole or not at all"
    );
    files.retain(|name| name != "b.yaml");
    let want = ["a.yaml: ConfigMap default/x", "a.yaml: ConfigMap default/z"];
    assert_eq!(shown(&mut files), want, "free now");
}

#[test]
fn of_two_new_files_the_first_has_the_name() {
    let mut files = files();
    files.offer("b.yaml", file(&[config_map("x")]));
    files.offer("a.yaml", file(&[config_map("x")]));
    let want = [
        "a.yaml: ConfigMap default/x",
        "! b.yaml: ConfigMap default/x: is already in a.yaml",
    ];
    assert_eq!(shown(&mut files), want);
}

#[test]
fn names_can_move_and_be_swapped() {
    let mut files = files();
    files.offer("a.yaml", file(&[config_map("x")]));
    files.offer("b.yaml", file(&[config_map("z")]));
    files.settle();
    files.offer("a.yaml", file(&[config_map("z")]));
    let blocked = "! a.yaml: ConfigMap default/z: is already in b.yaml".to_owned();
    assert!(shown(&mut files).contains(&blocked));
    files.offer("b.yaml", file(&[config_map("x")]));
    let want = ["a.yaml: ConfigMap default/z", "b.yaml: ConfigMap default/x"];
    assert_eq!(shown(&mut files), want);
}

#[test]
fn a_service_outlives_a_version_that_cannot_be() {
    let mut files = files();
    files.offer("web.yaml", file(&[service("web", "10.96.0.9")]));
    let good = "web.yaml: Service default/web .9".to_owned();
    assert_eq!(shown(&mut files), std::slice::from_ref(&good));
    files.offer("web.yaml", file(&[service("web", "10.0.0.1")]));
    let want = [
        good.clone(),
        "! web.yaml: Service default/web: spec.clusterIP: \
         10.0.0.1 is not in the service range 10.96.0.0/24"
            .to_owned(),
    ];
    assert_eq!(shown(&mut files), want);
    files.refuse("web.yaml", "nonsense".into());
    assert_eq!(
        shown(&mut files),
        [good.clone(), "! web.yaml: nonsense".into()]
    );
    assert!(files.refusals()[0].has_valid_version);
    // And its address is free when it goes.
    files.retain(|_| false);
    files.offer("other.yaml", file(&[service("other", "10.96.0.9")]));
    assert_eq!(shown(&mut files), ["other.yaml: Service default/other .9"]);
}

#[test]
fn a_headless_service_gives_its_address_back() {
    let mut files = files();
    files.offer("web.yaml", file(&[service("web", "10.96.0.9")]));
    files.settle();
    files.offer("web.yaml", file(&[service("web", "None")]));
    files.offer("other.yaml", file(&[service("other", "10.96.0.9")]));
    assert!(shown(&mut files).contains(&"other.yaml: Service default/other .9".into()));
}

#[test]
fn an_invalid_version_takes_back_the_one_that_waits() {
    let mut files = files();
    files.offer("a.yaml", file(&[config_map("x")]));
    files.settle();
    files.offer("b.yaml", file(&[config_map("x")]));
    files.settle();
    files.refuse("b.yaml", "nonsense".into());
    files.retain(|name| name != "a.yaml");
    assert_eq!(shown(&mut files), ["! b.yaml: nonsense"]);
    assert!(!files.refusals()[0].has_valid_version);
}

#[test]
fn what_was_in_force_is_before_the_directory_is_read() {
    let before = BTreeMap::from([
        ("b.yaml".to_owned(), file(&[config_map("x")])),
        ("web.yaml".to_owned(), file(&[service("web", "10.96.0.9")])),
        ("old.yaml".to_owned(), file(&[service("old", "10.0.0.1")])),
    ]);
    let mut files = restored(before);
    files.offer("a.yaml", file(&[config_map("x")]));
    files.refuse("web.yaml", "nonsense".into());
    let want = [
        "b.yaml: ConfigMap default/x",
        "web.yaml: Service default/web .9",
        "! web.yaml: nonsense",
        "! a.yaml: ConfigMap default/x: is already in b.yaml",
    ];
    assert_eq!(
        shown(&mut files),
        want,
        "but for what the range no longer has"
    );
}
