//! Which bytes of a log a request gets.

use jiff::Timestamp;

use super::line::LogLine;

/// What `kubectl logs` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on until the container ends.
    pub follow: bool,
    /// Of the instance before the current one.
    pub previous: bool,
    /// Put the time before every line.
    pub timestamps: bool,
    /// Nothing older than this.
    pub since: Option<Timestamp>,
    /// Only this many lines from the end.
    pub tail_lines: Option<u64>,
    /// At most this many bytes, then end.
    pub limit_bytes: Option<u64>,
}

/// Turns lines of the file into the bytes of the answer.
#[derive(Debug)]
pub struct Selector {
    since: Option<Timestamp>,
    timestamps: bool,
    remaining: u64,
    at_line_start: bool,
}

impl Selector {
    /// Nothing has been sent yet.
    pub fn new(options: &LogOptions) -> Self {
        Self {
            since: options.since,
            timestamps: options.timestamps,
            remaining: options.limit_bytes.unwrap_or(u64::MAX),
            at_line_start: true,
        }
    }

    /// Appends what `line` contributes to `out`. Parts of one line of the container
    /// are joined, and the time stands only before the first.
    pub fn push(&mut self, line: &LogLine<'_>, out: &mut Vec<u8>) {
        if self.since.is_some_and(|since| line.time < since) {
            return;
        }
        if self.timestamps && self.at_line_start {
            self.append(format!("{:.9} ", line.time).as_bytes(), out);
        }
        self.append(line.content, out);
        if !line.partial {
            self.append(b"\n", out);
        }
        self.at_line_start = !line.partial;
    }

    /// Whether the byte limit is used up.
    pub fn is_done(&self) -> bool {
        self.remaining == 0
    }

    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let room = usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        out.extend_from_slice(&bytes[..room]);
        self.remaining -= room as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[&str] = &[
        "2026-01-01T00:00:01Z stdout F one",
        "2026-01-01T00:00:02.5Z stderr P tw",
        "2026-01-01T00:00:02.6Z stderr F o",
        "2026-01-01T00:00:03Z stdout F three",
    ];

    #[track_caller]
    fn check(options: &LogOptions, want: &str) {
        let mut selector = Selector::new(options);
        let mut out = Vec::new();
        for line in LOG {
            selector.push(&LogLine::parse(line.as_bytes()).unwrap(), &mut out);
        }
        assert_eq!(String::from_utf8(out).unwrap(), want, "{options:?}");
    }

    #[test]
    fn parts_are_joined() {
        check(&LogOptions::default(), "one\ntwo\nthree\n");
    }

    #[test]
    fn times_stand_before_whole_lines_in_fixed_width() {
        check(
            &LogOptions {
                timestamps: true,
                ..LogOptions::default()
            },
            "2026-01-01T00:00:01.000000000Z one\n2026-01-01T00:00:02.500000000Z two\n\
             2026-01-01T00:00:03.000000000Z three\n",
        );
    }

    #[test]
    fn nothing_older_than_since() {
        let since = Some("2026-01-01T00:00:02.5Z".parse().unwrap());
        check(
            &LogOptions {
                since,
                ..LogOptions::default()
            },
            "two\nthree\n",
        );
    }

    #[test]
    fn the_limit_cuts_inside_a_line() {
        let limit = |bytes| LogOptions {
            limit_bytes: Some(bytes),
            ..LogOptions::default()
        };
        check(&limit(0), "");
        check(&limit(6), "one\ntw");
        check(&limit(1000), "one\ntwo\nthree\n");
        let mut selector = Selector::new(&limit(3));
        selector.push(&LogLine::parse(LOG[0].as_bytes()).unwrap(), &mut Vec::new());
        assert!(selector.is_done());
    }
}
