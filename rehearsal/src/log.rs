//! The log that the launcher reads: a line of JSON for each thing that a rehearsal could not answer.
//!
//! Each line is written at once, so lines of several processes do not mix. What repeats is written once.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::settings::settings;

/// The most lines of one process: what is written cannot fill a disk.
const MAX_LINES: usize = 10_000;

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = settings().log.as_ref()?;
    OpenOptions::new().create(true).append(true).open(path).ok()
});

static WRITTEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Writes an event about something, once: `{"pid":…,"event":"…","name":"…"}`.
pub(crate) fn once(event: &str, name: &str) {
    let Some(mut file) = FILE.as_ref() else { return };
    let line = format!("\"event\":\"{event}\",\"name\":\"{}\"", plain(name));
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if written.len() >= MAX_LINES || written.contains(&line) {
        return;
    }
    // A log on a full disk must not stop the script.
    let _unwritten = file.write_all(format!("{{\"pid\":{},{line}}}\n", std::process::id()).as_bytes());
    written.insert(line);
}

/// Names come from programs: what JSON would have to escape is replaced.
fn plain(name: &str) -> String {
    name.chars().take(200).map(|c| if c.is_control() || matches!(c, '"' | '\\') { '?' } else { c }).collect()
}
