//! One connection to the stand-in, as much of HTTP/1.1 as its clients speak.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query.
    pub(super) target: String,
    /// The bearer's.
    pub(super) token: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The last part of the path.
    pub(super) fn kind(&self) -> &str {
        let path = self.target.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// A parameter of the query, as it was sent.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, v)| v)
    }

    pub(super) fn asks(&self, name: &str, value: &str) -> bool {
        self.parameter(name) == Some(value)
    }
}

/// Both directions of a connection.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            writer: stream.try_clone()?,
            reader: BufReader::new(stream),
        })
    }

    /// The next one; none after the last.
    pub(super) fn request(&mut self) -> io::Result<Option<Request>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next(), words.next());
        let (mut length, mut token) = (0, None);
        loop {
            let mut header = String::new();
            self.reader.read_line(&mut header)?;
            let Some((name, value)) = header.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if name.eq_ignore_ascii_case("authorization") {
                token = value.trim().strip_prefix("Bearer ").map(str::to_owned);
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(Some(Request {
            method: method.unwrap_or_default(),
            target: target.unwrap_or_default(),
            token,
            body,
        }))
    }

    pub(super) fn answer(&mut self, status: &str, body: &[u8]) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.writer.write_all(&[head.as_bytes(), body].concat())
    }

    /// Begins an answer whose length is not known.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
            Transfer-Encoding: chunked\r\n\r\n";
        self.writer.write_all(head.as_bytes())
    }

    /// A line of such an answer.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        let chunk = format!("{:x}\r\n{line}\n\r\n", line.len() + 1);
        self.writer.write_all(chunk.as_bytes())
    }

    /// Ends such an answer; the connection is good for another one.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.writer.write_all(b"0\r\n\r\n")
    }
}

/// Hexadecimal digits, which a query takes as they are.
pub(super) fn encode(text: &str) -> String {
    let digits = |mut all: String, byte: u8| {
        write!(all, "{byte:02x}").expect("text takes any text");
        all
    };
    text.bytes().fold(String::new(), digits)
}

/// What [`encode`] has made of it; nothing of anything else.
pub(super) fn decode(digits: &str) -> String {
    let byte = |place| digits.get(place..place + 2);
    let bytes = (0..digits.len()).step_by(2).map(|place| {
        let pair = byte(place).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        pair.unwrap_or_default()
    });
    String::from_utf8(bytes.collect()).unwrap_or_default()
}
