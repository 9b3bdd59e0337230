//! Contents of small collectives that ranks on one machine exchange, through files in `VRAMLAB_REHEARSAL_RANKS` or
//! beside `VRAMLAB_REHEARSAL_SHARED`.
//!
//! A channel is a file to which one rank appends. For each collective it appends a record: its contribution, or a mark
//! that the contribution is not known. A rank waits for records only when the result of the collective is read, as on
//! cards.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::settings::settings;

/// Most bytes of one rank in a collective whose contents are exchanged.
pub(crate) const MAX_BYTES: usize = 1 << 16;

/// Longest wait for a rank. A rank that has not written its record by then, or has ended, is not waited for again.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(500);

/// Length that stands for unknown contents.
const UNKNOWN: u64 = u64::MAX;
const LENGTH_BYTES: u64 = 8;

/// A channel for reading, with the positions of its records.
struct Read {
    file: File,
    /// Position of the next record.
    end: u64,
    records: Vec<(u64, u64)>,
}

#[derive(Default)]
struct Channels {
    written: HashMap<String, (File, u64)>,
    read: HashMap<String, Read>,
    /// Number of records that are expected on channels between two ranks.
    expected: HashMap<String, u64>,
    silent: HashSet<String>,
}

static CHANNELS: LazyLock<Mutex<Channels>> = LazyLock::new(Mutex::default);

fn channels() -> MutexGuard<'static, Channels> {
    CHANNELS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if there is a folder where ranks can meet.
pub(crate) fn is_possible() -> bool {
    folder().is_some()
}

/// Folder in which the ranks of a run leave records for each other.
fn folder() -> Option<PathBuf> {
    let beside = || {
        let mut folder = settings().shared.clone()?.into_os_string();
        folder.push(".ranks");
        Some(folder.into())
    };
    settings().ranks.clone().or_else(beside)
}

/// Appends a record, and returns its number on the channel. `None` as contents means that they are not known.
pub(crate) fn send(channel: &str, contents: Option<&[u8]>) -> Option<u64> {
    let mut channels = channels();
    if !channels.written.contains_key(channel) {
        let folder = folder()?;
        std::fs::create_dir_all(&folder).ok()?;
        let file = OpenOptions::new().create(true).append(true).open(folder.join(channel)).ok()?;
        channels.written.insert(channel.to_string(), (file, 0));
    }
    let (file, count) = channels.written.get_mut(channel)?;
    let length = contents.map_or(UNKNOWN, |contents| contents.len() as u64);
    let mut record = length.to_ne_bytes().to_vec();
    record.extend_from_slice(contents.unwrap_or_default());
    file.write_all(&record).ok()?;
    *count += 1;
    Some(*count - 1)
}

/// Numbers the next record that this process expects, on a channel that only this process reads.
pub(crate) fn expect(channel: &str) -> u64 {
    let mut channels = channels();
    let count = channels.expected.entry(channel.to_string()).or_default();
    *count += 1;
    *count - 1
}

/// Waits for a record and returns its contents. `None` if they are not known, or no rank writes the record.
pub(crate) fn receive(channel: &str, number: u64) -> Option<Vec<u8>> {
    let start = Instant::now();
    loop {
        if let Some(found) = look(channel, number) {
            return found;
        }
        if channels().silent.contains(channel) {
            return None;
        }
        if start.elapsed() > PATIENCE {
            channels().silent.insert(channel.to_string());
            crate::log::once("not_exact", "a rank was waited for in vain");
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns a record if it exists: its contents, or `None` in it if they are not known.
fn look(channel: &str, number: u64) -> Option<Option<Vec<u8>>> {
    let mut channels = channels();
    if !channels.read.contains_key(channel) {
        let file = File::open(folder()?.join(channel)).ok()?;
        channels.read.insert(channel.to_string(), Read { file, end: 0, records: Vec::new() });
    }
    let read = channels.read.get_mut(channel)?;
    let there = read.file.metadata().ok()?.len();
    while read.records.len() as u64 <= number {
        let mut length = [0; LENGTH_BYTES as usize];
        read.file.read_exact_at(&mut length, read.end).ok()?;
        let length = u64::from_ne_bytes(length);
        let at = read.end + LENGTH_BYTES;
        let end = if length == UNKNOWN { at } else { at.saturating_add(length) };
        if end > there {
            return None;
        }
        read.records.push((at, length));
        read.end = end;
    }
    let (at, length) = *read.records.get(usize::try_from(number).ok()?)?;
    if length == UNKNOWN || length > MAX_BYTES as u64 {
        return Some(None);
    }
    let mut contents = vec![0; length as usize];
    read.file.read_exact_at(&mut contents, at).ok()?;
    Some(Some(contents))
}
