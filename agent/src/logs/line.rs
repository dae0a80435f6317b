//! One line of a CRI log file: `TIMESTAMP STREAM TAG CONTENT`.
//!
//! Source: kubernetes/design-proposals-archive, node/kubelet-cri-logging.md.

use jiff::Timestamp;

/// One line, borrowed from the file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// When the runtime read it.
    pub time: Timestamp,
    /// Which stream it came from.
    pub stream: Stream,
    /// The writer's line goes on in the next one.
    pub partial: bool,
    /// What the container wrote, without the line break.
    pub content: &'a [u8],
}

/// Where a container wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// A line is not in the CRI format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Fewer than three fields.
    #[error("log line has no {0}")]
    Missing(&'static str),
    /// The first field is not RFC 3339.
    #[error("log line has no RFC 3339 time stamp but {0:?}")]
    Timestamp(String),
    /// The second field names no stream.
    #[error("log line is from unknown stream {0:?}")]
    Stream(String),
}

impl<'a> LogLine<'a> {
    /// Reads one line; a line break at its end is not part of the content.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let (time, rest) = field(line).ok_or(LineError::Missing("time stamp"))?;
        let (stream, rest) = field(rest).ok_or(LineError::Missing("stream"))?;
        // An empty line may come without the blank after its tag.
        let (tags, content) = field(rest).unwrap_or((rest, &[]));
        if tags.is_empty() {
            return Err(LineError::Missing("tag"));
        }
        Ok(Self {
            time: parse_time(time)?,
            stream: parse_stream(stream)?,
            // Tags are separated by `:`; the first says whether the line is whole.
            partial: tags.split(|byte| *byte == b':').next() == Some(b"P"),
            content,
        })
    }
}

fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..blank], &text[blank + 1..]))
}

fn parse_time(text: &[u8]) -> Result<Timestamp, LineError> {
    let text = String::from_utf8_lossy(text);
    text.parse()
        .map_err(|_syntax: jiff::Error| LineError::Timestamp(text.into_owned()))
}

fn parse_stream(text: &[u8]) -> Result<Stream, LineError> {
    match text {
        b"stdout" => Ok(Stream::Stdout),
        b"stderr" => Ok(Stream::Stderr),
        other => Err(LineError::Stream(
            String::from_utf8_lossy(other).into_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, stream: Stream, partial: bool, content: &str) {
        let parsed = LogLine::parse(line.as_bytes()).unwrap();
        assert_eq!((parsed.stream, parsed.partial), (stream, partial), "{line}");
        assert_eq!(String::from_utf8_lossy(parsed.content), content, "{line}");
    }

    #[test]
    fn lines_of_the_format() {
        let t = "2026-01-02T03:04:05.123456789Z";
        check(
            &format!("{t} stdout F hello\n"),
            Stream::Stdout,
            false,
            "hello",
        );
        check(
            &format!("{t} stderr P half a"),
            Stream::Stderr,
            true,
            "half a",
        );
        check(
            &format!("{t} stdout F  two  blanks "),
            Stream::Stdout,
            false,
            " two  blanks ",
        );
        check(&format!("{t} stdout F \n"), Stream::Stdout, false, "");
        check(&format!("{t} stdout F\n"), Stream::Stdout, false, "");
        check(&format!("{t} stdout P:x y"), Stream::Stdout, true, "y");
        check(
            "2026-01-02T05:04:05.1+02:00 stdout F z",
            Stream::Stdout,
            false,
            "z",
        );
    }

    #[test]
    fn time_keeps_its_nanoseconds_and_zone() {
        let line = LogLine::parse(b"2026-01-02T05:04:05.000000001+02:00 stdout F z").unwrap();
        assert_eq!(line.time.to_string(), "2026-01-02T03:04:05.000000001Z");
    }

    #[test]
    fn other_lines_say_what_is_wrong() {
        let t = "2026-01-02T03:04:05Z";
        let error = |line: &str| LogLine::parse(line.as_bytes()).unwrap_err();
        assert_eq!(error(""), LineError::Missing("time stamp"));
        assert_eq!(error(t), LineError::Missing("time stamp"));
        assert_eq!(error(&format!("{t} stdout")), LineError::Missing("stream"));
        assert_eq!(error(&format!("{t} stdout ")), LineError::Missing("tag"));
        assert_eq!(
            error(&format!("{t} stdin F x")),
            LineError::Stream("stdin".into())
        );
        assert_eq!(error("now stdout F x"), LineError::Timestamp("now".into()));
    }
}
