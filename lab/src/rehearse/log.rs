//! The library's log of what differed from a real card.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use lab_results::NotAsOnACard;
use serde::Deserialize;

use super::folder::Folder;
use super::plain::open_plain;

/// Maximum number of bytes that are read: 16 processes may write 10,000 lines each.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of different events that are kept.
const MAX_EVENTS: usize = 2000;

/// Event of a change that found no room on the disk where the run keeps what the script writes. Its name is the path.
pub(super) const NO_ROOM: &str = "no_room";

#[derive(Deserialize)]
struct Line {
    event: String,
    name: String,
}

/// Reads the log, and returns each event once. `with_values` leaves out the events that the layer for values reports with their place.
pub(super) fn read(folder: &Folder, with_values: bool) -> Vec<NotAsOnACard> {
    let Ok(file) = open_plain(&folder.log()) else { return Vec::new() };
    let mut found = BTreeSet::new();
    for line in BufReader::new(file.take(MAX_BYTES)).split(b'\n').map_while(Result::ok) {
        let Ok(Line { event, name }) = serde_json::from_slice::<Line>(&line) else { continue };
        // The layer for values writes these into its own report as well.
        let told = matches!(event.as_str(), "unknown_read" | "assumed" | "wrong_size");
        if found.len() < MAX_EVENTS && !(with_values && told) {
            found.insert((event, name));
        }
    }
    found.into_iter().map(|(event, name)| NotAsOnACard { event, name }).collect()
}
