//! Opens HTTP connections at a steady pace, and keeps one open: what traffic notices.
//!
//! The pace is kept by the clock: a connection that takes long does not delay the next one.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::timed_out;

/// How often the connection that is kept is used.
const HELD_EVERY: Duration = Duration::from_millis(100);

/// What has been seen so far; each number grows, `longest` and `gap` too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dialed {
    /// Since the start.
    pub elapsed: Duration,
    /// New connections that were answered.
    pub new: u64,
    /// New connections that were not.
    pub failed: u64,
    /// The longest that a new connection took, with its answer.
    pub longest: Duration,
    /// The longest time between two starts of a connection.
    pub gap: Duration,
    /// Answers on the connection that is kept.
    pub held: u64,
    /// The connection that is kept broke; it is not opened again.
    pub broken: u64,
}

impl fmt::Display for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "dialed {} {} {} {} {} {} {}",
            self.elapsed.as_micros(),
            self.new,
            self.failed,
            self.longest.as_micros(),
            self.gap.as_micros(),
            self.held,
            self.broken
        )
    }
}

impl FromStr for Dialed {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers = line.strip_prefix("dialed ").map(|rest| {
            rest.split(' ')
                .map(str::parse)
                .collect::<Result<Vec<u64>, _>>()
        });
        let Some(Ok(numbers)) = numbers else {
            return Err(format!("not what a dialer prints: {line:?}"));
        };
        let [elapsed, new, failed, longest, gap, held, broken] = numbers[..] else {
            return Err(format!("seven numbers expected: {line:?}"));
        };
        Ok(Self {
            elapsed: Duration::from_micros(elapsed),
            new,
            failed,
            longest: Duration::from_micros(longest),
            gap: Duration::from_micros(gap),
            held,
            broken,
        })
    }
}

/// Where to dial, and how.
#[derive(Debug, Clone, Copy)]
pub struct Dialer {
    /// An HTTP server that answers `GET /hostname`.
    pub address: SocketAddr,
    /// From one start of a connection to the next.
    pub every: Duration,
    /// A connection that takes longer has failed.
    pub patience: Duration,
}

impl Dialer {
    /// Dials until `stop` says so. `say` gets a line for every failure, and the counts about
    /// once a second and at the end.
    pub fn run(&self, stop: impl Fn() -> bool + Sync, say: impl Fn(&str) + Sync) -> Dialed {
        let run = Run {
            dialer: *self,
            started: Instant::now(),
            counts: Mutex::new(Dialed::default()),
            stop: &stop,
            say: &say,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run.hold());
            let mut said = run.started;
            let mut last = run.started;
            let mut next = run.started;
            while !stop() {
                let now = Instant::now();
                run.count(|counts| counts.gap = counts.gap.max(now - last));
                last = now;
                scope.spawn(|| run.dial());
                if now - said >= Duration::from_secs(1) {
                    said = now;
                    run.say_counts();
                }
                next += self.every;
                // Behind by a hiccup of the machine: two at once do not make up for it.
                next = next.max(now);
                pause_until(next);
            }
        });
        run.say_counts()
    }
}

struct Run<'a, Stop, Say> {
    dialer: Dialer,
    started: Instant,
    counts: Mutex<Dialed>,
    stop: &'a Stop,
    say: &'a Say,
}

impl<Stop: Fn() -> bool, Say: Fn(&str)> Run<'_, Stop, Say> {
    fn lock(&self) -> MutexGuard<'_, Dialed> {
        self.counts.lock().expect("no holder panics")
    }

    fn count(&self, change: impl FnOnce(&mut Dialed)) {
        change(&mut self.lock());
    }

    fn say_counts(&self) -> Dialed {
        let counts = Dialed {
            elapsed: self.started.elapsed(),
            ..*self.lock()
        };
        (self.say)(&counts.to_string());
        counts
    }

    fn dial(&self) {
        let started = Instant::now();
        let answer = Http::open(&self.dialer).and_then(|mut http| http.ask());
        let took = started.elapsed();
        self.count(|counts| {
            counts.longest = counts.longest.max(took);
            if answer.is_ok() {
                counts.new += 1;
            } else {
                counts.failed += 1;
            }
        });
        if let Err(error) = answer {
            self.say_failure("a new connection", took, &error);
        }
    }

    fn hold(&self) {
        let opened = Instant::now();
        let mut http = None;
        while !(self.stop)() {
            let answer = match &mut http {
                Some(http) => Http::ask(http),
                None => Http::open(&self.dialer).and_then(|opened| http.insert(opened).ask()),
            };
            if let Err(error) = answer {
                self.count(|counts| counts.broken += 1);
                self.say_failure("the held connection", opened.elapsed(), &error);
                return;
            }
            self.count(|counts| counts.held += 1);
            pause_until(Instant::now() + HELD_EVERY);
        }
    }

    fn say_failure(&self, which: &str, took: Duration, error: &io::Error) {
        let (at, kind) = (self.started.elapsed(), error.kind());
        (self.say)(&format!(
            "FAIL {which} after {took:?}, {at:?} from the start: {kind:?}: {error}"
        ));
    }
}

/// A pause may end early: this thread is woken when others end.
fn pause_until(time: Instant) {
    while let Some(left) = time.checked_duration_since(Instant::now()) {
        crate::sweep::pause(left);
        if left.is_zero() {
            break;
        }
    }
}

/// A connection to an HTTP/1.1 server.
struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    fn open(dialer: &Dialer) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&dialer.address, dialer.patience)?;
        stream.set_read_timeout(Some(dialer.patience))?;
        stream.set_write_timeout(Some(dialer.patience))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Asks for the host name and reads the answer to its end.
    fn ask(&mut self) -> io::Result<()> {
        let request = b"GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n";
        self.stream.get_mut().write_all(request)?;
        self.answer().map_err(timed_out)
    }

    fn answer(&mut self) -> io::Result<()> {
        let status = self.line()?;
        if !status.starts_with("HTTP/1.1 200") {
            return Err(io::Error::other(format!("answered {status:?}")));
        }
        let mut length = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
        }
        let length: usize = length.ok_or_else(|| io::Error::other("no Content-Length"))?;
        self.stream.read_exact(&mut vec![0; length])
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Serves `answers` answers, on as many connections as come, and then closes them all.
    fn serve(listener: TcpListener, answers: u64) {
        let left = AtomicU64::new(answers);
        std::thread::scope(|scope| {
            while left.load(Ordering::SeqCst) > 0 {
                let (stream, _) = listener.accept().unwrap();
                let left = &left;
                scope.spawn(move || {
                    let mut stream = BufReader::new(stream);
                    let mut line = String::new();
                    while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                        if line == "\r\n" {
                            let take = |n: u64| n.checked_sub(1);
                            if left
                                .try_update(Ordering::SeqCst, Ordering::SeqCst, take)
                                .is_err()
                            {
                                return;
                            }
                            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nweb";
                            stream.get_mut().write_all(answer).ok();
                        }
                        line.clear();
                    }
                });
            }
            drop(listener);
        });
    }

    fn dial(address: SocketAddr, time: Duration) -> (Dialed, String) {
        let dialer = Dialer {
            address,
            every: Duration::from_millis(20),
            patience: Duration::from_secs(2),
        };
        let said = Mutex::new(String::new());
        let started = Instant::now();
        let counts = dialer.run(
            || started.elapsed() > time,
            |line| {
                let mut said = said.lock().unwrap();
                said.push_str(line);
                said.push('\n');
            },
        );
        (counts, said.into_inner().unwrap())
    }

    #[test]
    fn the_pace_is_kept_and_every_failure_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener, 30));
            let (counts, said) = dial(address, Duration::from_secs(4));
            assert_eq!(counts.new + counts.held, 30, "{said}");
            // 200, on a machine that is not too busy.
            assert!(counts.new + counts.failed <= 201, "{said}");
            assert!(counts.failed > 0 && counts.broken == 1, "{said}");
            let failures = said.lines().filter(|line| line.starts_with("FAIL "));
            assert_eq!(failures.count() as u64, counts.failed + 1, "{said}");
            let last = said.lines().last().unwrap();
            assert_eq!(last, counts.to_string());
            let read: Dialed = last.parse().unwrap();
            assert_eq!(read.to_string(), last);
            assert!(counts.longest > Duration::ZERO, "{said}");
            assert!(counts.gap >= Duration::from_millis(20), "{said}");
        });
    }

    #[test]
    fn nobody_there_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let (counts, said) = dial(address, Duration::from_millis(100));
        assert_eq!((counts.new, counts.held, counts.broken), (0, 0, 1));
        assert!(counts.failed >= 1, "{said}");
        assert!(said.contains("ConnectionRefused"), "{said}");
    }

    #[test]
    fn only_a_dialers_line_is_read() {
        for bad in ["", "FAIL x", "dialed 1 2", "dialed 1 2 3 4 5 6 x"] {
            assert!(bad.parse::<Dialed>().is_err(), "{bad}");
        }
    }
}
