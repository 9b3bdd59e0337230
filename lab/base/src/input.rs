//! Opens what a command reads: files, pipes, standard input. A pipe without a writer is waited for, until the command is asked to end.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Tells whether the command is asked to end.
static ASKED: OnceLock<fn() -> bool> = OnceLock::new();
/// True once a reader gave up for that.
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// Time between two looks at whether the command is asked to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes read at a time from a pipe.
const CHUNK: usize = 1 << 16;

/// The name of standard input on a command line.
pub const STDIN: &str = "-";

/// Pipes of which the beginning was read: who opens one of them reads that beginning, too.
static BEGUN: Mutex<Vec<(PathBuf, Pipe)>> = Mutex::new(Vec::new());

/// Sets what tells whether the command is asked to end; the first one stays.
pub fn ends_when(asked: fn() -> bool) {
    let _ = ASKED.set(asked);
}

/// True if a reader gave up because the command was asked to end: the file did not cause its error.
pub fn gave_up() -> bool {
    GAVE_UP.load(SeqCst)
}

/// An open file or pipe. Reading a pipe fails once the command is asked to end.
#[derive(Debug)]
pub enum Input {
    /// A regular file.
    File(File),
    /// Anything else: a pipe, a device, standard input.
    Pipe(Pipe),
}

/// A pipe, read by a thread of its own: no signal ends a read that waits.
#[derive(Debug)]
pub struct Pipe {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    at: usize,
}

/// Opens a file or a pipe; `-` is standard input.
///
/// # Errors
/// A path that does not exist, may not be read, or is a directory. A pipe that cannot be opened is told at the first read.
pub fn open(path: &Path) -> io::Result<Input> {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = begun.iter().position(|(known, _)| known == path) {
        return Ok(Input::Pipe(begun.swap_remove(at).1));
    }
    drop(begun);
    if path == Path::new(STDIN) {
        return read_by_thread(|| Ok(io::stdin()));
    }
    let metadata = path.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "is a directory"));
    }
    if metadata.is_file() {
        return File::open(path).map(Input::File);
    }
    let path = path.to_path_buf();
    read_by_thread(move || File::open(path))
}

/// Returns the first bytes of a file or a pipe, `most` at most; `-` is standard input. What is read of a pipe is kept for who opens it next.
///
/// # Errors
/// Those of [`open`], and of the file.
pub fn head(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut pipe = match open(path)? {
        Input::File(file) => {
            let mut head = Vec::new();
            file.take(most as u64).read_to_end(&mut head)?;
            return Ok(head);
        }
        Input::Pipe(pipe) => pipe,
    };
    let mut head = std::mem::take(&mut pipe.chunk).split_off(std::mem::take(&mut pipe.at));
    while head.len() < most {
        let Some(chunk) = pipe.next()? else { break };
        head.extend(chunk);
    }
    pipe.chunk.clone_from(&head);
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_path_buf(), pipe));
    head.truncate(most);
    Ok(head)
}

/// What errors call a file.
pub fn name(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".into() } else { path.display().to_string() }
}

/// True for what can be read and is not a regular file: standard input, a pipe, a device.
pub fn is_pipe(path: &Path) -> bool {
    path == Path::new(STDIN) || path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn read_by_thread<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<Input> {
    // Two chunks at most wait: what nobody reads is not taken from the pipe.
    let (sender, chunks) = sync_channel(2);
    thread::Builder::new().name("input".into()).spawn(move || match open() {
        Ok(source) => pass_on(source, &sender),
        Err(error) => drop(sender.send(Err(error))),
    })?;
    Ok(Input::Pipe(Pipe { chunks, chunk: Vec::new(), at: 0 }))
}

fn pass_on(mut source: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let read = match source.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return drop(sender.send(Err(error))),
        };
        chunk.truncate(read);
        if sender.send(Ok(chunk)).is_err() {
            return;
        }
    }
}

impl Input {
    /// Length of a regular file in bytes; `None` for a pipe.
    pub fn length(&self) -> Option<u64> {
        match self {
            Input::File(file) => file.metadata().ok().map(|metadata| metadata.len()),
            Input::Pipe(_) => None,
        }
    }

    /// Moves to the last `most` bytes of a regular file; a pipe is read from where it is.
    ///
    /// # Errors
    /// Those of the file.
    pub fn to_last(&mut self, most: u64) -> io::Result<()> {
        match (self.length(), self) {
            (Some(bytes), Input::File(file)) if bytes > most => file.seek(SeekFrom::Start(bytes - most)).map(drop),
            _ => Ok(()),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(buffer),
            Input::Pipe(pipe) => pipe.read(buffer),
        }
    }
}

impl Pipe {
    /// Waits for further bytes; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.chunks.recv_timeout(LOOK) {
                Ok(chunk) => return chunk.map(Some),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if ASKED.get().is_some_and(|asked| asked()) => {
                    GAVE_UP.store(true, SeqCst);
                    return Err(io::Error::other("interrupted while it was waited for"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            match self.next()? {
                Some(chunk) => (self.chunk, self.at) = (chunk, 0),
                None => return Ok(0),
            }
        }
        let taken = buffer.len().min(self.chunk.len() - self.at);
        buffer[..taken].copy_from_slice(&self.chunk[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_in_order() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = read_by_thread(move || Ok(reader)).unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let writing = thread::spawn(move || writer.write_all(&sent));
        let mut read = Vec::new();
        input.read_to_end(&mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert!(read == expected && input.length().is_none());
    }

    #[test]
    #[cfg(unix)]
    fn who_opens_a_pipe_reads_its_beginning_too() {
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let sent: Vec<u8> = (0..200_000u32).map(|n| (n % 241) as u8).collect();
        let expected = sent.clone();
        let writing = thread::spawn(move || writer.write_all(&sent));
        assert!(is_pipe(&path));
        assert_eq!(head(&path, 100_000).unwrap(), expected[..100_000]);
        assert_eq!(head(&path, 5).unwrap(), expected[..5]);
        let mut read = Vec::new();
        open(&path).unwrap().read_to_end(&mut read).unwrap();
        writing.join().unwrap().unwrap();
        assert!(read == expected);
    }
}
