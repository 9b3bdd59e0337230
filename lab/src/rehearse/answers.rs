//! What the script's processes say: read as files from outside, with bounds.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::folder::Folder;

/// The largest file of figures that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The largest figure that is believed, of bytes, counts and times: sums of some of them stay within 64 bits.
const MAX_FIGURE: u64 = 1 << 53;
/// The most processes that are listened to.
const MAX_PROCESSES: usize = 256;

/// What one process says. All of it may be missing or wrong: it comes from outside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) pid: u64,
    pub(super) rank: u64,
    pub(super) world: u64,
    /// `running`, or why it ended: `steps`, `seen`, `exit`, `asked`, `terminated`.
    pub(super) why: String,
    pub(super) steps: u64,
    pub(super) torch: String,
    pub(super) cards: Vec<Card>,
    pub(super) seen: Seen,
    pub(super) held: Vec<Held>,
    /// When each backward pass began and ended; one that did not end has no end. Microseconds.
    pub(super) backward: Vec<(i64, Option<i64>)>,
    /// Addresses to which batches were moved from the host, and when.
    pub(super) inputs: Vec<(u64, i64)>,
    pub(super) oom: Option<Oom>,
    pub(super) exception: Option<Exception>,
    pub(super) compiled: Compiled,
    pub(super) values: Option<Values>,
    /// What was not sent.
    pub(super) withheld: Vec<String>,
    /// The most events that the snapshot may have.
    pub(super) entries: u64,
}

impl Answer {
    /// True if no figure is beyond what a process can have.
    fn is_plausible(&self) -> bool {
        let own = [self.pid, self.rank, self.world, self.steps, self.entries, self.compiled.new];
        let cards =
            self.cards.iter().flat_map(|card| [card.index as u64, card.peak_allocated, card.peak_reserved, card.ooms]);
        let oom = self.oom.iter().flat_map(|oom| {
            [oom.card as u64, oom.requested, oom.free, oom.allocated, oom.reserved, oom.count, oom.step]
        });
        let values = self.values.iter().flat_map(|values| {
            let places = values.places.iter().flat_map(|place| [place.count, place.bytes.unwrap_or(0)]);
            places.chain([values.beyond])
        });
        let backward = self.backward.iter().flat_map(|(from, to)| [*from, to.unwrap_or(0)]);
        let times =
            backward.chain(self.held.iter().map(|held| held.time_us)).chain(self.inputs.iter().map(|input| input.1));
        let figures = own.into_iter().chain(cards).chain(oom).chain(values).chain(times.map(i64::unsigned_abs));
        figures.max().is_none_or(|most| most <= MAX_FIGURE)
    }
}

/// A card that a process used. Bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) peak_allocated: u64,
    pub(super) peak_reserved: u64,
    pub(super) ooms: u64,
}

/// What was seen besides steps.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    pub(super) evaluation: bool,
    pub(super) saving: bool,
    pub(super) generation: bool,
}

/// Addresses of what an optimizer works on, when it had made a step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Held {
    pub(super) time_us: i64,
    pub(super) parameter: Vec<u64>,
    pub(super) gradient: Vec<u64>,
    pub(super) optimizer: Vec<u64>,
}

/// The first time that memory ran out. Bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Oom {
    pub(super) card: usize,
    pub(super) requested: u64,
    pub(super) free: u64,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) count: u64,
    pub(super) r#where: String,
    /// Steps that were done.
    pub(super) step: u64,
}

/// What ended a process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exception {
    pub(super) r#type: String,
    pub(super) message: String,
    pub(super) out_of_memory: bool,
}

/// Graphs that were compiled.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Compiled {
    /// Those that no cache had.
    pub(super) new: u64,
}

/// The report of the layer for values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Values {
    pub(super) places: Vec<Place>,
    pub(super) beyond: u64,
}

/// A place at which something was read that is not known, or assumed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    pub(super) event: String,
    pub(super) r#where: String,
    pub(super) inside: String,
    pub(super) operator: String,
    pub(super) kind: String,
    pub(super) bytes: Option<u64>,
    pub(super) answer: Option<String>,
    pub(super) count: u64,
}

/// What a process says when it has imported PyTorch.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Started {
    pub(super) torch: String,
    /// The release of CUDA that it is built for.
    pub(super) cuda: Option<String>,
}

/// All answers, by rank and process. What is none is left out: [`unreadable`] names it.
pub(super) fn read(folder: &Folder) -> Vec<Answer> {
    let mut all: Vec<Answer> = files(folder, ".json").into_iter().filter_map(|(.., path)| answer(&path)).collect();
    all.sort_by_key(|answer| (answer.rank, answer.pid));
    all
}

/// Files that should be answers and are none.
pub(super) fn unreadable(folder: &Folder) -> Vec<String> {
    let is_none = |path: &Path| answer(path).is_none();
    let found = files(folder, ".json").into_iter().filter(|(.., path)| is_none(path));
    found.map(|(name, ..)| name.to_string_lossy().into_owned()).collect()
}

/// One answer; `None` of what is none, or has figures that no process can have.
pub(super) fn answer(path: &Path) -> Option<Answer> {
    read_one(path).filter(Answer::is_plausible)
}

fn read_one<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&bytes(path)?).ok()
}

/// Who imported PyTorch.
pub(super) fn started(folder: &Folder) -> Vec<Started> {
    files(folder, ".started").into_iter().filter_map(|(.., path)| read_one(&path)).collect()
}

/// What went wrong in the part of the rehearsal that runs inside the script.
pub(super) fn faults(folder: &Folder) -> Vec<String> {
    let text = |path: PathBuf| Some(String::from_utf8_lossy(&bytes(&path)?).into_owned());
    files(folder, ".fault").into_iter().filter_map(|(.., path)| text(path)).collect()
}

/// What the script asks for that cannot be given.
pub(super) fn problems(folder: &Folder) -> BTreeSet<String> {
    let text = |path: PathBuf| Some(String::from_utf8_lossy(&bytes(&path)?).into_owned());
    files(folder, ".problem").into_iter().filter_map(|(.., path)| text(path)).collect()
}

/// The snapshot of a process.
pub(super) fn snapshot(folder: &Folder, pid: u64) -> Option<PathBuf> {
    let path = folder.answers().join(format!("{pid}.pickle"));
    path.is_file().then_some(path)
}

/// Regular files whose names end so: name, when it was written, path.
pub(super) fn files(folder: &Folder, ending: &str) -> Vec<(OsString, SystemTime, PathBuf)> {
    let entries = std::fs::read_dir(folder.answers()).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name();
        let metadata = entry.metadata().ok().filter(|metadata| metadata.is_file())?;
        name.to_str()?.ends_with(ending).then_some(())?;
        Some((name, metadata.modified().ok()?, entry.path()))
    });
    found.take(MAX_PROCESSES).collect()
}

/// The contents of a file that is not too long.
fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut contents = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES + 1).read_to_end(&mut contents).ok()?;
    (contents.len() as u64 <= MAX_BYTES).then_some(contents)
}
