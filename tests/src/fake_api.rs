//! As much of an API server as a list and a watch need: plain HTTP, JSON, no validation.
//!
//! Unlike the real one it serves what a test wants, such as malformed objects, and
//! answers when the test wants it. Lists come in pages, or as the beginning of a watch, for
//! who asks for that. Selectors are not looked at.

mod http;
mod moods;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use serde_json::{Value, json};

use crate::Netns;
use http::{Connection, Request};

pub use moods::{Ahead, Backup, Gone};

/// Services, by the last part of their path.
pub const SERVICES: &str = "services";
/// EndpointSlices, likewise.
pub const SLICES: &str = "endpointslices";
/// Nodes, likewise.
pub const NODES: &str = "nodes";

/// What objects of a kind say that they are; clients of Go want it of everything in a watch.
const TYPES: [(&str, &str, &str); 3] = [
    (SERVICES, "v1", "Service"),
    (SLICES, "discovery.k8s.io/v1", "EndpointSlice"),
    (NODES, "v1", "Node"),
];
/// Objects of a page, for who does not say.
const PAGE: usize = 500;

const WHOLE: &str = "nobody panics while holding it";

/// A server that lives as long as the process; its threads end with their connections.
#[derive(Clone, Debug)]
pub struct FakeApi {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// By kind and namespace/name.
    objects: BTreeMap<(String, String), Value>,
    /// Version, kind, and the line of the watch.
    events: Vec<(u64, String, String)>,
    /// A kind whose requests are not answered.
    held: Option<&'static str>,
    requests: Vec<String>,
    /// Bodies of those that write.
    written: Vec<String>,
    /// All that there were, to be broken off.
    connections: Vec<TcpStream>,
    down: bool,
    turned_away: Vec<Instant>,
    /// The status of all answers, instead of what is asked for.
    refusal: Option<&'static str>,
    /// The one that requests must have, if any.
    token: Option<String>,
    /// What has changed before this version is forgotten,
    oldest: u64,
    /// and watches are told so.
    gone: Gone,
    ahead: Ahead,
    /// When the last object of a list had been sent, by kind.
    listed: Vec<(String, Instant)>,
}

impl State {
    fn break_off(&mut self) {
        for connection in self.connections.drain(..) {
            // Those that have ended already are closed.
            connection.shutdown(Shutdown::Both).ok();
        }
    }
}

/// A part of a list.
struct Page {
    /// Of the list's beginning.
    version: u64,
    items: Vec<Value>,
    /// The last one's, if there are more.
    next: Option<String>,
}

impl FakeApi {
    /// Listens at `address` inside `netns`; requests for `held` wait for [`release`](Self::release).
    ///
    /// # Panics
    /// When that address cannot be listened at.
    #[must_use]
    #[track_caller]
    pub fn start(netns: &Netns, address: SocketAddr, held: Option<&'static str>) -> Self {
        let listener = netns.enter(|| TcpListener::bind(address));
        let listener = listener.unwrap_or_else(|error| panic!("listen at {address}: {error}"));
        Self::serve(listener, held)
    }

    /// The same at an address that is listened at already.
    #[must_use]
    pub fn serve(listener: TcpListener, held: Option<&'static str>) -> Self {
        let state = State {
            held,
            version: 1,
            ..State::default()
        };
        let api = Self {
            state: Arc::new((Mutex::new(state), Condvar::new())),
        };
        let server = api.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                if !server.arrives(&connection) {
                    continue;
                }
                // A client that goes away ends its thread by an error.
                std::thread::spawn(move || server.answer(connection).ok());
            }
        });
        api
    }

    /// Adds or changes an object.
    pub fn apply(&self, kind: &str, object: Value) {
        self.change(kind, "MODIFIED", object);
    }

    /// Deletes an object.
    pub fn delete(&self, kind: &str, object: Value) {
        self.change(kind, "DELETED", object);
    }

    /// Answers from now on what was held.
    pub fn release(&self) {
        self.lock().held = None;
        self.state.1.notify_all();
    }

    /// Breaks off all connections, and new ones until [`up`](Self::up), as when its process
    /// has died. Objects may change meanwhile.
    pub fn down(&self) {
        let mut state = self.lock();
        state.down = true;
        state.break_off();
    }

    /// Answers again.
    pub fn up(&self) {
        self.lock().down = false;
    }

    /// Whether a new connection is to be answered.
    fn arrives(&self, connection: &TcpStream) -> bool {
        let mut state = self.lock();
        if let (false, Ok(connection)) = (state.down, connection.try_clone()) {
            state.connections.push(connection);
        }
        if state.down {
            state.turned_away.push(Instant::now());
        }
        !state.down
    }

    /// Paths with queries, in the order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    /// What has been written, such as events, in the order of arrival.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        self.lock().written.clone()
    }

    /// When the last object of the first list of a kind had been sent, of those that ended
    /// after `since`.
    #[must_use]
    pub fn listed(&self, kind: &str, since: Instant) -> Option<Instant> {
        let state = self.lock();
        let mut ends = state.listed.iter().filter(|(listed, _)| listed == kind);
        ends.find(|(_, end)| *end > since).map(|(_, end)| *end)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().expect(WHOLE)
    }

    fn change(&self, kind: &str, event: &str, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        for (_, group, name) in TYPES.iter().filter(|(known, ..)| *known == kind) {
            object["apiVersion"] = json!(group);
            object["kind"] = json!(name);
        }
        let meta = &object["metadata"];
        let key = (
            kind.to_owned(),
            format!("{}/{}", meta["namespace"], meta["name"]),
        );
        let line = watched(event, &object);
        state.events.push((version, kind.to_owned(), line));
        if event == "DELETED" {
            state.objects.remove(&key);
        } else {
            state.objects.insert(key, object);
        }
        self.state.1.notify_all();
    }

    fn answer(&self, connection: TcpStream) -> io::Result<()> {
        let mut connection = Connection::new(connection)?;
        while let Some(request) = connection.request()? {
            self.arrived(&request);
            if let Some((status, body)) = self.refused(&request) {
                connection.answer(status, body.to_string().as_bytes())?;
            } else if request.method != "GET" {
                // Such as an event: whoever writes has it stored as it is.
                connection.answer("201 Created", &request.body)?;
            } else if request.asks("watch", "true") {
                self.watch(&request, &mut connection)?;
            } else {
                self.list(&request, &mut connection)?;
            }
        }
        Ok(())
    }

    fn arrived(&self, request: &Request) {
        let mut state = self.lock();
        state.requests.push(request.target.clone());
        if request.method != "GET" {
            let body = String::from_utf8_lossy(&request.body);
            state.written.push(body.into_owned());
        }
        while state.held == Some(request.kind()) {
            state = self.state.1.wait(state).expect(WHOLE);
        }
    }

    /// Objects of a kind that come after `last`, as they are now.
    fn page(&self, kind: &str, last: &str, most: usize) -> Page {
        let state = self.lock();
        let from = Bound::Excluded((kind.to_owned(), last.to_owned()));
        let rest = state.objects.range((from, Bound::Unbounded));
        let rest = rest.take_while(|((k, _), _)| k == kind);
        let page: Vec<_> = rest.take(most.saturating_add(1)).collect();
        let more = page.len() > most;
        let page = &page[..page.len().min(most)];
        let last = page.last().map(|((_, name), _)| name.clone());
        Page {
            version: state.version,
            items: page.iter().map(|&(_, object)| object.clone()).collect(),
            next: last.filter(|_| more),
        }
    }

    fn list(&self, request: &Request, connection: &mut Connection) -> io::Result<()> {
        let kind = request.kind();
        let most = request.parameter("limit").and_then(|n| n.parse().ok());
        let most = most.filter(|most| *most > 0).unwrap_or(usize::MAX);
        // What changes between two pages is in the watch from the first one's version on.
        let token = request.parameter("continue").unwrap_or_default();
        let token = http::decode(token);
        let (version, last) = token.split_once(' ').unwrap_or_default();
        let page = self.page(kind, last, most);
        let version = version.parse().unwrap_or(page.version);
        let next = page.next.map(|name| format!("{version} {name}"));
        let body = json!({
            "metadata": {
                "resourceVersion": version.to_string(),
                "continue": next.as_deref().map(http::encode),
            },
            "items": page.items,
        });
        connection.answer("200 OK", body.to_string().as_bytes())?;
        if next.is_none() {
            self.lock().listed.push((kind.to_owned(), Instant::now()));
        }
        Ok(())
    }

    fn watch(&self, request: &Request, connection: &mut Connection) -> io::Result<()> {
        let kind = request.kind();
        let since = request.parameter("resourceVersion");
        let mut seen: u64 = since.and_then(|v| v.parse().ok()).unwrap_or(0);
        if let Some((status, body)) = self.cannot_begin(seen) {
            return connection.answer(status, body.to_string().as_bytes());
        }
        connection.begin()?;
        if request.asks("sendInitialEvents", "true") {
            seen = self.list_by_watch(kind, connection)?;
        }
        while let Some(news) = self.news(kind, &mut seen) {
            for line in news {
                connection.line(&line)?;
            }
        }
        if let Some(line) = self.last_line() {
            connection.line(&line)?;
        }
        connection.end()
    }

    /// Waits for more than `seen`: the lines about a kind that came since, if they are still
    /// known.
    fn news(&self, kind: &str, seen: &mut u64) -> Option<Vec<String>> {
        let mut state = self.lock();
        while state.version <= *seen {
            state = self.state.1.wait(state).expect(WHOLE);
        }
        if state.has_forgotten(*seen) {
            return None;
        }
        let all = state.events.iter();
        let new = all.filter(|(version, k, _)| *version > *seen && k == kind);
        let lines = new.map(|(_, _, line)| line.clone()).collect();
        *seen = state.version;
        Some(lines)
    }

    /// A list as the first events of a watch, ended by a bookmark. Gives its version.
    fn list_by_watch(&self, kind: &str, connection: &mut Connection) -> io::Result<u64> {
        let mut last = String::new();
        let mut begun = None;
        loop {
            let page = self.page(kind, &last, PAGE);
            let version = *begun.get_or_insert(page.version);
            for object in &page.items {
                connection.line(&watched("ADDED", object))?;
            }
            let Some(next) = page.next else {
                connection.line(&bookmark(kind, version))?;
                self.lock().listed.push((kind.to_owned(), Instant::now()));
                return Ok(version);
            };
            last = next;
        }
    }
}

/// A line of a watch.
fn watched(event: &str, object: &Value) -> String {
    json!({ "type": event, "object": object }).to_string()
}

/// What ends the first events of a watch.
fn bookmark(kind: &str, version: u64) -> String {
    let mut object = json!({
        "metadata": {
            "resourceVersion": version.to_string(),
            "annotations": { "k8s.io/initial-events-end": "true" },
        },
    });
    for (_, group, name) in TYPES.iter().filter(|(known, ..)| *known == kind) {
        object["apiVersion"] = json!(group);
        object["kind"] = json!(name);
    }
    watched("BOOKMARK", &object)
}

#[cfg(test)]
mod tests;
