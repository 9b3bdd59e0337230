//! Processes that answer requests, one at a time each: what takes too long or too much memory ends its process, and never the server.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;

/// Time for one answer.
const TIME: Duration = Duration::from_secs(10);

/// Requests that may wait.
const WAITING: usize = 64;

/// The largest answer. Bytes.
const MAX_ANSWER: u64 = 32 << 20;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too many requests wait.
    Busy,
    /// It took too long.
    Slow,
    /// The process ended.
    Ended,
}

impl Refused {
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Busy => "Busy: too many requests wait.".into(),
            Self::Slow => format!(
                "This takes longer than the {} seconds that the page allows: use vramlab predict.",
                TIME.as_secs()
            ),
            Self::Ended => {
                "This takes more memory than the page allows, or met an error of the program: use vramlab predict."
                    .into()
            }
        }
    }
}

/// The processes.
pub(super) struct Workers {
    program: PathBuf,
    /// The folder of dropped files.
    files: Option<PathBuf>,
    idle: Mutex<Vec<Worker>>,
    running: Semaphore,
    waiting: Semaphore,
}

struct Worker {
    /// Ends with this value.
    _process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Workers {
    /// Makes so many; each starts with its first request.
    pub(super) fn new(program: PathBuf, files: Option<PathBuf>, most: usize) -> Self {
        let (running, waiting) = (Semaphore::new(most), Semaphore::new(most + WAITING));
        Self { program, files, idle: Mutex::default(), running, waiting }
    }

    /// Answers one request. A request that is given up ends its process.
    ///
    /// # Errors
    /// Without an answer.
    pub(super) async fn answer(&self, request: &str) -> Result<String, Refused> {
        let _place = self.waiting.try_acquire().map_err(|_| Refused::Busy)?;
        let _turn = self.running.acquire().await.map_err(|_| Refused::Ended)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut worker = match idle {
            Some(worker) => worker,
            None => self.start().map_err(|_| Refused::Ended)?,
        };
        let answer = tokio::time::timeout(TIME, worker.ask(request)).await.map_err(|_| Refused::Slow)?;
        let answer = answer.ok().filter(|answer| answer.ends_with('\n')).ok_or(Refused::Ended)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        Ok(answer)
    }

    fn start(&self) -> std::io::Result<Worker> {
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "ui", "--worker"]).env(crate::args::ONLY_BUILT_IN, "1");
        if let Some(files) = &self.files {
            command.arg("--files").arg(files);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(to), Some(from)) => Ok(Worker { _process: process, to, from: BufReader::new(from) }),
            _ => Err(std::io::Error::other("no pipes")),
        }
    }
}

impl Worker {
    async fn ask(&mut self, request: &str) -> std::io::Result<String> {
        // A line for each: JSON needs no line breaks.
        self.to.write_all(request.replace(['\n', '\r'], " ").as_bytes()).await?;
        self.to.write_all(b"\n").await?;
        let mut answer = String::new();
        let mut from = tokio::io::AsyncReadExt::take(&mut self.from, MAX_ANSWER);
        from.read_line(&mut answer).await?;
        Ok(answer)
    }
}
