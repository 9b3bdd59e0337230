//! The log for the launcher: a line of JSON for each call that a rehearsal could not answer.
//!
//! Each line is written with one call, so that lines of several processes do not mix. Equal lines are written once.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::settings::settings;

/// Most lines of one process, so that the log cannot fill a disk.
const MAX_LINES: usize = 10_000;

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = settings().log.as_ref()?;
    OpenOptions::new().create(true).append(true).open(path).ok()
});

static WRITTEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Writes an event about something, once: `{"pid":…,"event":"…","name":"…"}`. What cuDNN does while it plans is not an event.
pub(crate) fn once(event: &str, name: &str) {
    if crate::planning::is_planning() {
        return;
    }
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

/// Replaces the characters that JSON would have to escape: names come from programs.
fn plain(name: &str) -> String {
    name.chars().take(200).map(|c| if c.is_control() || matches!(c, '"' | '\\') { '?' } else { c }).collect()
}
