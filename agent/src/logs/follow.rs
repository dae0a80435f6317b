//! Reads a log file, and goes on reading while its container lives.

use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncSeekExt as _, BufReader};
use tokio::sync::{Notify, mpsc};
use tracing::{debug, warn};

use super::line::LogLine;
use super::select::{LogOptions, Selector};
use super::tail::tail_start;

/// How long a follower sleeps when nothing wakes it. The end of a container does
/// not touch its log, so that is only seen by looking.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is sent at once at most; more than a line and less than a socket buffer.
const CHUNK_BYTES: usize = 32 * 1024;

/// Where the bytes go. A closed channel means that nobody reads any more.
pub type Output = mpsc::Sender<io::Result<Bytes>>;

/// Sends what `options` select of the log at `path` to `output`.
///
/// With `follow` it goes on until `alive` says no and the file is read to its end,
/// and survives that the file is renamed and a new one begun.
pub async fn send_log(
    path: &Path,
    options: &LogOptions,
    alive: impl Fn() -> bool + Send + Sync,
    output: Output,
) {
    let result = match Follower::open(path, options, output.clone()).await {
        Ok(follower) => follower.run(options.follow, alive).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        debug!(path = %path.display(), %error, "Log reading ended");
        // The reader may be gone, which is one way for a log request to end.
        drop(output.send(Err(error)).await);
    }
}

struct Follower {
    path: PathBuf,
    reader: BufReader<File>,
    inode: u64,
    selector: Selector,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
    output: Output,
}

/// What a look at the file's end showed.
#[derive(PartialEq)]
enum Progress {
    /// All that there is has been sent.
    AtEnd,
    /// The byte limit is used up, or nobody reads any more.
    Finished,
}

impl Follower {
    async fn open(path: &Path, options: &LogOptions, output: Output) -> io::Result<Self> {
        let mut file = File::open(path).await?;
        if let Some(lines) = options.tail_lines {
            let mut std_file = file.try_clone().await?.into_std().await;
            let start = tokio::task::spawn_blocking(move || tail_start(&mut std_file, lines))
                .await
                .map_err(io::Error::other)??;
            file.seek(SeekFrom::Start(start)).await?;
        }
        Ok(Self {
            path: path.to_owned(),
            inode: file.metadata().await?.ino(),
            reader: BufReader::with_capacity(CHUNK_BYTES, file),
            selector: Selector::new(options),
            unfinished: Vec::new(),
            output,
        })
    }

    async fn run(mut self, follow: bool, alive: impl Fn() -> bool) -> io::Result<()> {
        if !follow {
            self.drain().await?;
            return self.send_unfinished().await;
        }
        // Watching starts before reading: nothing falls between the two.
        let changes = Changes::of(&self.path);
        loop {
            let alive_before = alive();
            if self.drain().await? == Progress::Finished {
                return Ok(());
            }
            if self.switch_if_rotated().await? {
                continue;
            }
            if !alive_before {
                return self.send_unfinished().await;
            }
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.output.closed() => return Ok(()),
            }
        }
    }

    /// Sends everything up to the file's present end.
    async fn drain(&mut self) -> io::Result<Progress> {
        let mut chunk = Vec::new();
        loop {
            if self.selector.is_done() {
                self.send(chunk).await;
                return Ok(Progress::Finished);
            }
            let read = self.reader.read_until(b'\n', &mut self.unfinished).await?;
            let at_end = read == 0 || !self.unfinished.ends_with(b"\n");
            if !at_end {
                self.take_line(&mut chunk);
            }
            let full = chunk.len() >= CHUNK_BYTES;
            if (at_end || full) && !self.send(std::mem::take(&mut chunk)).await {
                return Ok(Progress::Finished);
            }
            if at_end {
                return Ok(Progress::AtEnd);
            }
        }
    }

    fn take_line(&mut self, chunk: &mut Vec<u8>) {
        match LogLine::parse(&self.unfinished) {
            Ok(line) => self.selector.push(&line, chunk),
            Err(error) => warn!(path = %self.path.display(), %error, "Skipped a log line"),
        }
        self.unfinished.clear();
    }

    /// A last line without its break, when no more will come.
    async fn send_unfinished(&mut self) -> io::Result<()> {
        let mut chunk = Vec::new();
        if !self.unfinished.is_empty() {
            self.take_line(&mut chunk);
        }
        self.send(chunk).await;
        Ok(())
    }

    /// Whether somebody still reads.
    async fn send(&self, chunk: Vec<u8>) -> bool {
        if chunk.is_empty() {
            return !self.output.is_closed();
        }
        self.output.send(Ok(Bytes::from(chunk))).await.is_ok()
    }

    /// Goes over to a new file at the same path. It is there only after the runtime
    /// has begun to write to it, so the old one grows no more and is read out first.
    async fn switch_if_rotated(&mut self) -> io::Result<bool> {
        let file = match File::open(&self.path).await {
            Ok(file) => file,
            // Between the rename and the new file, or the pod's logs were removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let inode = file.metadata().await?.ino();
        if inode == self.inode {
            return Ok(false);
        }
        self.drain().await?;
        self.send_unfinished().await?;
        self.inode = inode;
        self.reader = BufReader::with_capacity(CHUNK_BYTES, file);
        Ok(true)
    }
}

/// Wakes when something happens in a file's directory.
struct Changes {
    wakes: Arc<Notify>,
    /// Without inotify (its limits are small) the regular look has to do.
    _watcher: Option<RecommendedWatcher>,
}

impl Changes {
    fn of(path: &Path) -> Self {
        let wakes = Arc::new(Notify::new());
        let wake = Arc::clone(&wakes);
        let watcher =
            notify::recommended_watcher(move |_event| wake.notify_one()).and_then(|mut watcher| {
                let directory = path.parent().unwrap_or(Path::new("/"));
                watcher.watch(directory, RecursiveMode::NonRecursive)?;
                Ok(watcher)
            });
        let watcher = watcher
            .inspect_err(
                |error| debug!(path = %path.display(), %error, "Following without inotify"),
            )
            .ok();
        Self {
            wakes,
            _watcher: watcher,
        }
    }

    async fn next(&self) {
        self.wakes.notified().await;
    }
}

#[cfg(test)]
mod tests;
