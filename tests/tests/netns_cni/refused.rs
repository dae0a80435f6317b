//! Calls that cannot be understood: the exit status, and the reason on standard output.

use seaway_testbed::{Netns, require_root};
use serde_json::json;

use crate::node::{Node, failure, feed, pod_path};
use crate::protocol::feed_text;

#[test]
fn case_5_wrong_ids_and_names_are_refused_on_standard_output() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    for (name, value) in [
        ("CNI_CONTAINERID", "-bad"),
        ("CNI_CONTAINERID", "a/b"),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "sixteen-bytes-xx"),
        ("CNI_IFNAME", "a:b"),
    ] {
        for verb in ["ADD", "DEL", "CHECK"] {
            let mut command = node.command(verb, "c1", pod_path(&pod));
            command.env(name, value);
            let error = failure(&feed(command, &node.conf));
            assert_eq!(error["code"], 4, "{verb}: {error}");
            let message = error["msg"].as_str().unwrap();
            let said = message.contains(name) && message.contains(value);
            assert!(said, "{verb} {name}={value}: {error}");
        }
    }
    assert!(!node.dir.path().join("cni").exists(), "nothing was touched");
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    node.assert_empty();
}

#[test]
fn case_6_a_wrong_conf_is_refused_on_standard_output() {
    if !require_root() {
        return;
    }
    let (node, pod) = (Node::new("10.244.1.0/24"), Netns::new("pod"));
    let (mut nameless, mut misnamed) = (node.conf.clone(), node.conf.clone());
    nameless.as_object_mut().unwrap().remove("name");
    misnamed["name"] = json!("a/b");
    for (conf, code, why) in [
        ("{".to_owned(), 6, "not JSON"),
        (String::new(), 6, "not JSON"),
        (nameless.to_string(), 7, "name: is required"),
        (misnamed.to_string(), 7, "name: \"a/b\""),
    ] {
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let command = node.command(verb, "c1", pod_path(&pod));
            let error = failure(&feed_text(command, &conf));
            assert_eq!(error["code"], code, "{verb} {conf}: {error}");
            let message = error["msg"].as_str().unwrap();
            assert!(message.contains(why), "{verb} {conf}: {error}");
        }
    }
    assert!(!node.dir.path().join("cni").exists(), "nothing was touched");
    assert_eq!(pod.ip_json("link").as_array().unwrap().len(), 1);
    node.assert_empty();
}
