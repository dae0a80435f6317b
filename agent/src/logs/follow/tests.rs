use std::fs::{File as StdFile, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn line(second: u32, text: &str) -> String {
    format!("2026-01-01T00:00:{second:02}Z stdout F {text}\n")
}

struct Log {
    directory: tempfile::TempDir,
    alive: Arc<AtomicBool>,
}

impl Log {
    fn new(lines: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("0.log"), lines).unwrap();
        Self {
            directory,
            alive: Arc::new(AtomicBool::new(true)),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("0.log")
    }

    fn append(&self, text: &str) {
        let mut file = OpenOptions::new().append(true).open(self.path()).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn read(&self, options: LogOptions) -> Reading {
        let (sender, receiver) = mpsc::channel(4);
        let (path, alive) = (self.path(), self.alive.clone());
        let task = tokio::spawn(async move {
            send_log(&path, &options, || alive.load(Ordering::SeqCst), sender).await;
        });
        Reading {
            receiver,
            text: String::new(),
            task,
        }
    }
}

struct Reading {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    text: String,
    task: tokio::task::JoinHandle<()>,
}

impl Reading {
    async fn until(&mut self, text: &str) {
        while !self.text.contains(text) {
            let chunk = self
                .receiver
                .recv()
                .await
                .expect("the log goes on")
                .unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn rest(mut self) -> String {
        while let Some(chunk) = self.receiver.recv().await {
            self.text
                .push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
        self.task.await.unwrap();
        self.text
    }
}

#[tokio::test]
async fn without_follow_it_ends_at_the_end() {
    let log = Log::new(&(line(1, "one") + &line(2, "two") + "2026-01-01T00:00:03Z stdout F thr"));
    assert_eq!(
        log.read(LogOptions::default()).rest().await,
        "one\ntwo\nthr\n"
    );
    let tail = LogOptions {
        tail_lines: Some(1),
        ..LogOptions::default()
    };
    assert_eq!(log.read(tail).rest().await, "two\nthr\n");
}

#[tokio::test]
async fn lines_that_are_none_are_skipped() {
    let log = Log::new(&(line(1, "one") + "rubbish\n" + &line(2, "two")));
    assert_eq!(log.read(LogOptions::default()).rest().await, "one\ntwo\n");
}

#[tokio::test]
async fn a_missing_file_is_an_error() {
    let (sender, mut receiver) = mpsc::channel(1);
    send_log(
        Path::new("/nowhere/0.log"),
        &LogOptions::default(),
        || true,
        sender,
    )
    .await;
    let error = receiver.recv().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn follow_sees_what_comes_later_and_ends_with_the_container() {
    let log = Log::new(&line(1, "one"));
    let mut reading = log.read(LogOptions {
        follow: true,
        ..LogOptions::default()
    });
    reading.until("one\n").await;
    log.append("2026-01-01T00:00:02Z stdout F tw");
    log.append("o\n");
    reading.until("two\n").await;
    log.append(&line(3, "last"));
    log.alive.store(false, Ordering::SeqCst);
    assert_eq!(reading.rest().await, "one\ntwo\nlast\n");
}

#[tokio::test]
async fn follow_survives_rotation_and_loses_nothing() {
    let log = Log::new(&line(1, "one"));
    let mut reading = log.read(LogOptions {
        follow: true,
        ..LogOptions::default()
    });
    reading.until("one\n").await;
    let rotated = log.directory.path().join("0.log.20260101-000000");
    std::fs::rename(log.path(), &rotated).unwrap();
    let mut old = OpenOptions::new().append(true).open(&rotated).unwrap();
    old.write_all(line(2, "late").as_bytes()).unwrap();
    StdFile::create(log.path())
        .unwrap()
        .write_all(line(3, "new").as_bytes())
        .unwrap();
    reading.until("new\n").await;
    log.alive.store(false, Ordering::SeqCst);
    assert_eq!(reading.rest().await, "one\nlate\nnew\n");
}

#[tokio::test]
async fn follow_ends_when_nobody_reads() {
    let log = Log::new(&line(1, "one"));
    let mut reading = log.read(LogOptions {
        follow: true,
        ..LogOptions::default()
    });
    reading.until("one\n").await;
    drop(reading.receiver);
    reading.task.await.unwrap();
}
