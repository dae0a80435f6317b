//! What is measured of requests to the API server, under the names of Kubernetes' own client
//! and by their meaning there.
//!
//! There are as many lines as methods, codes and servers: methods are of a closed set, the
//! server is one, and no address, path or text of an error is a label.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Labelled;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// In seconds; the same as everybody else's, so that those of many nodes can be added up.
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// Those that may be in a label.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];

/// The code where no answer came.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Try {
    code: String,
    method: &'static str,
    host: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Whole {
    verb: &'static str,
    host: Arc<str>,
}

type Durations = Labelled<Whole, Histogram, fn() -> Histogram>;

/// Handles are shared, so clones count together.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequests {
    tries: Labelled<Try, Counter>,
    durations: Durations,
}

/// Those to one server.
#[derive(Clone, Debug)]
pub(crate) struct ToServer {
    all: ApiRequests,
    host: Arc<str>,
}

/// A request that is under way, with all its tries; dropped at its end.
#[derive(Debug)]
pub(crate) struct UnderWay {
    durations: Histogram,
    since: Instant,
}

fn buckets() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Default for ApiRequests {
    fn default() -> Self {
        Self {
            tries: Labelled::default(),
            durations: Durations::new_with_constructor(buckets),
        }
    }
}

impl ApiRequests {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Tries of requests to the API server, by what was answered",
            self.tries.clone(),
        );
        registry.register_with_unit(
            "rest_client_request_duration",
            "From a request to the end of its answer, or to the beginning of a watch",
            Unit::Seconds,
            self.durations.clone(),
        );
    }

    /// `host` is its name and port.
    pub(crate) fn to(&self, host: &str) -> ToServer {
        ToServer {
            all: self.clone(),
            host: host.into(),
        }
    }
}

impl ToServer {
    /// The server was asked once; no `answer` came if there is none.
    pub(crate) fn tried(&self, method: &Method, answer: Option<StatusCode>) {
        let code = answer.as_ref().map_or(NO_ANSWER, StatusCode::as_str);
        let labels = Try {
            code: code.to_owned(),
            method: known(method),
            host: self.host.clone(),
        };
        self.all.tries.get_or_create(&labels).inc();
    }

    pub(crate) fn begins(&self, method: &Method) -> UnderWay {
        let labels = Whole {
            verb: known(method),
            host: self.host.clone(),
        };
        UnderWay {
            durations: self.all.durations.get_or_create_owned(&labels),
            since: Instant::now(),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.durations.observe(self.since.elapsed().as_secs_f64());
    }
}

/// As it is in labels.
fn known(method: &Method) -> &'static str {
    let mut names = METHODS.into_iter();
    let name = names.find(|name| *name == method.as_str());
    name.unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(requests: &ApiRequests) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        requests.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn tries_are_counted_by_code_method_and_host() {
        let requests = ApiRequests::default();
        let server = requests.to("10.96.0.1:443");
        for answer in [Some(StatusCode::OK), Some(StatusCode::OK), None] {
            server.tried(&Method::GET, answer);
        }
        server.tried(&Method::POST, Some(StatusCode::FORBIDDEN));
        let text = text(&requests);
        assert!(
            text.contains("# TYPE rest_client_requests counter\n"),
            "{text}"
        );
        for (code, method, count) in [("200", "GET", 2), ("<error>", "GET", 1), ("403", "POST", 1)]
        {
            let line = format!(
                "rest_client_requests_total{{code=\"{code}\",method=\"{method}\",host=\"10.96.0.1:443\"}} {count}"
            );
            assert!(text.lines().any(|l| l == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn durations_have_the_buckets_of_kubernetes_own_client() {
        let requests = ApiRequests::default();
        drop(requests.to("10.96.0.1:443").begins(&Method::GET));
        let text = text(&requests);
        let name = "rest_client_request_duration_seconds";
        let count = format!("{name}_count{{verb=\"GET\",host=\"10.96.0.1:443\"}} 1\n");
        assert!(text.contains(&count), "{text}");
        let kind = format!("# TYPE {name} histogram\n");
        assert!(text.contains(&kind), "{text}");
        let bucket = format!("{name}_bucket{{le=\"");
        let bounds = text.lines().filter_map(|l| l.strip_prefix(&bucket));
        let bounds: Vec<&str> = bounds.filter_map(|l| l.split('"').next()).collect();
        let want = [
            "0.005", "0.025", "0.1", "0.25", "0.5", "1.0", "2.0", "4.0", "8.0", "15.0", "30.0",
            "60.0", "+Inf",
        ];
        assert_eq!(bounds, want, "{text}");
    }

    #[test]
    fn a_request_that_has_not_ended_has_no_duration() {
        let requests = ApiRequests::default();
        let under_way = requests.to("a:1").begins(&Method::PATCH);
        let count = |number| {
            format!(
                "rest_client_request_duration_seconds_count{{verb=\"PATCH\",host=\"a:1\"}} {number}\n"
            )
        };
        assert!(text(&requests).contains(&count(0)));
        drop(under_way);
        assert!(text(&requests).contains(&count(1)));
    }

    #[test]
    fn no_method_makes_a_line_of_its_own() {
        assert_eq!(known(&Method::PATCH), "PATCH");
        for odd in ["PROPFIND", "get"] {
            let odd = Method::from_bytes(odd.as_bytes()).unwrap();
            assert_eq!(known(&odd), "other");
        }
    }
}
