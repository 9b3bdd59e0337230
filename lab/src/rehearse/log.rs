//! The library's log of what differed from a real card.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use lab_results::{NotAsOnACard, TOGETHER};
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

/// What several processes had on a card at once: an event for each card of each machine that had several.
pub(super) fn together(folder: &Folder) -> Vec<NotAsOnACard> {
    (0..).map_while(|machine| of_machine(folder, machine)).flatten().collect()
}

/// The events of a machine; `None` if it has no file. Behind the slots of processes the library has two words for each card (`rehearsal/src/shared.rs`).
fn of_machine(folder: &Folder, machine: u32) -> Option<Vec<NotAsOnACard>> {
    const CARDS: u64 = 16;
    const SLOTS: u64 = 1024 * (1 + CARDS) * 8;
    let mut file = open_plain(&folder.shared(machine)).ok()?;
    let mut words = Vec::new();
    file.seek(SeekFrom::Start(SLOTS)).and_then(|_| file.take(CARDS * 16).read_to_end(&mut words)).ok()?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let cards = words.chunks_exact(16).map(|card| (word(&card[8..]), word(&card[..8])));
    let of_several = cards.filter(|(processes, _)| *processes > 1);
    let event = |(processes, bytes)| NotAsOnACard { event: TOGETHER.into(), name: format!("{processes} {bytes}") };
    Some(of_several.map(event).collect())
}
