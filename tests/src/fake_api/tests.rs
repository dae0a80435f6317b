//! The stand-in as its clients meet it.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use super::*;

fn serve(services: u32) -> (FakeApi, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let api = FakeApi::serve(listener, None);
    for n in 0..services {
        let name = format!("s{n:02}");
        api.apply(
            SERVICES,
            json!({"metadata": {"namespace": "default", "name": name}}),
        );
    }
    (api, address)
}

/// What has been answered when it has ended in `end`.
fn ask(address: SocketAddr, request: &str, end: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(5));
    stream.set_read_timeout(patience).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut room = [0; 4096];
    while !answer.ends_with(end) {
        let length = stream.read(&mut room).unwrap();
        answer.push_str(std::str::from_utf8(&room[..length]).unwrap());
    }
    answer
}

fn get(address: SocketAddr, target: &str) -> Value {
    let answer = ask(address, &format!("GET {target} HTTP/1.1\r\n\r\n"), "}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn pages_are_the_list_and_the_watch_goes_on_from_the_first() {
    let (api, address) = serve(5);
    let before = Instant::now();
    let mut names = Vec::new();
    let mut target = "/api/v1/services?limit=2".to_owned();
    loop {
        let page = get(address, &target);
        let items = page["items"].as_array().unwrap();
        names.extend(items.iter().map(|item| item["metadata"]["name"].clone()));
        assert_eq!(page["metadata"]["resourceVersion"], "6", "{page}");
        let Some(next) = page["metadata"]["continue"].as_str() else {
            break;
        };
        assert_eq!(api.listed(SERVICES, before), None);
        // What comes in between is told by the watch.
        api.apply(NODES, json!({"metadata": {"name": "n"}}));
        target = format!("/api/v1/services?limit=2&continue={next}");
    }
    assert_eq!(names, ["s00", "s01", "s02", "s03", "s04"]);
    // It is noted once the page has left.
    crate::wait_until(Duration::from_secs(5), "the list's end", || {
        Ok(api.listed(SERVICES, before).ok_or_else(String::new))
    })
    .unwrap();
    assert_eq!(api.listed(SLICES, before), None);
}

#[test]
fn a_watch_begins_with_the_list_for_who_asks() {
    let (api, address) = serve(3);
    let target = "/api/v1/services?watch=true&sendInitialEvents=true";
    let request = format!("GET {target} HTTP/1.1\r\n\r\n");
    let answer = ask(address, &request, "\"type\":\"BOOKMARK\"}\n\r\n");
    let events: Vec<Value> = answer
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect();
    let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["ADDED", "ADDED", "ADDED", "BOOKMARK"], "{answer}");
    let end = &events[3]["object"];
    assert_eq!(
        end["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(
        (&end["kind"], &end["apiVersion"]),
        (&json!("Service"), &json!("v1"))
    );
    assert!(api.requests().iter().any(|asked| asked == target));
}

#[test]
fn who_writes_gets_it_back_and_may_ask_on() {
    let (_api, address) = serve(1);
    let body = "{\"a\": 1}";
    let head = format!("Content-Length: {}\r\n\r\n", body.len());
    let post = format!("POST /apis/events.k8s.io/v1/events HTTP/1.1\r\n{head}{body}");
    let list = "GET /api/v1/services HTTP/1.1\r\n\r\n";
    let answer = ask(address, &format!("{post}{list}"), "}}");
    assert!(answer.contains("201 Created"), "{answer}");
    assert!(answer.contains(body) && answer.contains("s00"), "{answer}");
}

#[test]
fn tokens_come_back_as_they_were() {
    for text in ["", "7 \"default\"/\"a-b\"", "ü"] {
        assert_eq!(http::decode(&http::encode(text)), text);
    }
}

#[test]
fn what_is_forgotten_is_told_by_an_event_or_by_the_status() {
    let (api, address) = serve(2);
    let watch = "GET /api/v1/services?watch=true&resourceVersion=2 HTTP/1.1\r\n\r\n";
    api.forget(Gone::Event);
    let answer = ask(address, watch, "0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("\"code\":410"), "{answer}");
    assert!(answer.contains("\"type\":\"ERROR\""), "{answer}");
    api.forget(Gone::Status);
    let answer = ask(address, watch, "}");
    assert!(answer.starts_with("HTTP/1.1 410 "), "{answer}");
    let list = get(address, "/api/v1/services");
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn a_backup_has_the_objects_and_the_version_of_its_moment() {
    let (api, address) = serve(2);
    let backup = api.backup();
    let late = json!({"metadata": {"namespace": "default", "name": "late"}});
    api.apply(SERVICES, late.clone());
    api.restore(&backup, Ahead::Refused);
    let list = get(address, "/api/v1/services");
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(list["metadata"]["resourceVersion"], "3", "{list}");
    let watch = "GET /api/v1/services?watch=true&resourceVersion=4 HTTP/1.1\r\n\r\n";
    let answer = ask(address, watch, "}");
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("ResourceVersionTooLarge"), "{answer}");
    api.apply(SERVICES, late);
    let list = get(address, "/api/v1/services");
    assert_eq!(list["metadata"]["resourceVersion"], "4", "{list}");
}

#[test]
fn who_is_refused_is_told_why_and_a_token_is_asked_for() {
    let (api, address) = serve(1);
    let list = |header: &str| {
        let request = format!("GET /api/v1/services HTTP/1.1\r\n{header}\r\n");
        ask(address, &request, "}")
    };
    api.refuse(Some("403 Forbidden"));
    let answer = list("");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("\"reason\":\"Forbidden\""), "{answer}");
    api.refuse(None);
    api.take_token("new");
    for (header, status) in [
        ("", "401"),
        ("Authorization: Bearer old\r\n", "401"),
        ("authorization: Bearer new\r\n", "200"),
    ] {
        let answer = list(header);
        let start = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&start), "{header}: {answer}");
    }
}
