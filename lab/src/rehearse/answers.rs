//! Answers of the script's processes. They are read like files from outside, with limits.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::contract;
use super::folder::Folder;
use super::plain::open_plain;

/// Maximum size of a file of figures that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Largest plausible figure, of bytes, counts and times. It is so small that sums of some figures stay within 64 bits.
const MAX_FIGURE: u64 = 1 << 53;
/// Maximum number of files of one kind that are read. Each process writes one.
const MAX_PROCESSES: usize = 256;

/// Answer of one process. Any field may be missing or wrong, because the file comes from outside.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Answer {
    pub(super) pid: u64,
    pub(super) rank: u64,
    pub(super) world: u64,
    /// `running`, or the reason why the process ended: `steps`, `seen`, `exit`, `asked`, `terminated`.
    pub(super) why: String,
    pub(super) steps: u64,
    pub(super) torch: String,
    pub(super) cards: Vec<Card>,
    pub(super) seen: Seen,
    /// True if transformers' code for generating texts is loaded.
    pub(super) can_generate: bool,
    pub(super) held: Vec<Held>,
    /// Start and end of each backward pass, in microseconds. A pass that did not end has no end.
    pub(super) backward: Vec<(i64, Option<i64>)>,
    /// Addresses to which batches were moved from the host, each with its time in microseconds.
    pub(super) inputs: Vec<(u64, i64)>,
    pub(super) oom: Option<Oom>,
    pub(super) exception: Option<Exception>,
    pub(super) compiled: Compiled,
    pub(super) values: Option<Values>,
    /// Names of withheld uploads and messages.
    pub(super) withheld: Vec<String>,
    /// Maximum number of events that the snapshot may have.
    pub(super) entries: u64,
    pub(super) growth: Growth,
    /// Lines that run only every so many steps.
    pub(super) periods: Vec<Period>,
    pub(super) lines: Lines,
    /// Cards, and addresses of workspaces that PyTorch keeps there for libraries.
    pub(super) workspaces: Vec<(usize, u64)>,
    pub(super) host: Host,
    /// Phases in the order in which they began, if they were asked for.
    pub(super) phases: Vec<Phase>,
}

impl Answer {
    /// True if no figure exceeds [`MAX_FIGURE`].
    fn is_plausible(&self) -> bool {
        let host = [self.host.locked, self.host.managed];
        let own = [self.pid, self.rank, self.world, self.steps, self.entries, self.compiled.new];
        let cards = self
            .cards
            .iter()
            .flat_map(|card| [card.index as u64, card.peak_allocated, card.peak_reserved, card.ooms, card.made]);
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
        let marks = self.growth.marks.iter().flatten().flat_map(|(card, made, freed)| [*card as u64, *made, *freed]);
        let holders =
            self.growth.holders.iter().flat_map(|holder| [holder.limit.unwrap_or(0), holder.length.unwrap_or(0)]);
        let periods = self.periods.iter().map(|period| period.every);
        let phases = self
            .phases
            .iter()
            .flat_map(|phase| [phase.card as u64, phase.peak_allocated, phase.peak_reserved, phase.since, phase.until]);
        let figures = own
            .into_iter()
            .chain(host)
            .chain(marks)
            .chain(holders)
            .chain(periods)
            .chain(phases)
            .chain(cards)
            .chain(oom)
            .chain(values)
            .chain(times.map(i64::unsigned_abs));
        figures.max().is_none_or(|most| most <= MAX_FIGURE)
    }
}

/// Card that a process used. Sizes are in bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Card {
    pub(super) index: usize,
    pub(super) peak_allocated: u64,
    pub(super) peak_reserved: u64,
    pub(super) ooms: u64,
    /// Number of allocations until the answer was written.
    pub(super) made: u64,
}

/// The most memory of the host that cards could read, in bytes: page-locked (pinned or registered), and managed.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Host {
    pub(super) locked: u64,
    pub(super) managed: u64,
}

/// Most that one phase of the run took on a card. Sizes are in bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Phase {
    /// `load`, `train`, `evaluate`, `generate`, `save`, `resume`.
    pub(super) name: String,
    pub(super) card: usize,
    pub(super) peak_allocated: u64,
    pub(super) peak_reserved: u64,
    /// Numbers of allocations on the card, between which the peak was.
    pub(super) since: u64,
    pub(super) until: u64,
}

/// Uses of the network, besides steps, that were seen.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    pub(super) evaluation: bool,
    pub(super) saving: bool,
    pub(super) generation: bool,
}

/// Addresses of the tensors that an optimizer works on, after one of its steps.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Held {
    pub(super) time_us: i64,
    pub(super) parameter: Vec<u64>,
    pub(super) gradient: Vec<u64>,
    pub(super) optimizer: Vec<u64>,
    pub(super) buffer: Vec<u64>,
}

/// First failed allocation. Sizes are in bytes.
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
    /// Number of steps done until then.
    pub(super) step: u64,
}

/// Starts of nodes of the backward pass, and the lines of the forward pass that made them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lines {
    /// Frames (file, line, function), innermost first.
    pub(super) places: Vec<Vec<(String, i64, String)>>,
    /// Card, number of allocations on it until then, place, name of the node.
    pub(super) marks: Vec<(usize, u64, usize, String)>,
}

/// Marks of the ends of steps, and who holds what grew.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Growth {
    /// True if the last step requested what the one before it did, and left the blocks of an earlier one that did.
    pub(super) flat: bool,
    /// For each of the last steps: cards, with the number of allocations and of frees until its end.
    pub(super) marks: Vec<Vec<(usize, u64, u64)>>,
    pub(super) holders: Vec<Holder>,
}

/// Line of the script that runs only every so many steps.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Period {
    pub(super) r#where: String,
    pub(super) every: u64,
    /// What is counted: `step`; `turn` of a loop of which each makes many steps; `epoch`, where that loop is not known.
    pub(super) of: String,
    /// That loop's line.
    pub(super) r#loop: Option<String>,
    /// True if the steps show whether it adds to memory.
    pub(super) settled: bool,
}

/// What holds some blocks, as Python's garbage collector knows it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Holder {
    pub(super) card: usize,
    /// Addresses of some of the blocks.
    pub(super) addresses: Vec<u64>,
    /// True if a collection of garbage freed all of these.
    pub(super) cycle: bool,
    /// A few words; `None` if no holder was found.
    pub(super) holder: Option<String>,
    /// Line at which the program puts something there.
    pub(super) r#where: Option<String>,
    /// True if the holder may fill: it replaces entries, its length is limited, or the program empties it.
    pub(super) fills: bool,
    /// Line at which the program empties it or limits its length.
    pub(super) emptied: Option<String>,
    /// Number of entries at most.
    pub(super) limit: Option<u64>,
    /// Number of entries.
    pub(super) length: Option<u64>,
}

/// Exception that ended a process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exception {
    pub(super) r#type: String,
    pub(super) message: String,
    pub(super) out_of_memory: bool,
}

/// Numbers of compiled graphs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Compiled {
    /// Number of graphs that were compiled because no cache had them.
    pub(super) new: u64,
}

/// Report of the layer that computes small tensors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Values {
    pub(super) places: Vec<Place>,
    pub(super) beyond: u64,
}

/// Place in the script that read a value which is unknown, or assumed.
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

/// Note that a process writes when it has imported PyTorch.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Started {
    pub(super) torch: String,
    /// CUDA release that this PyTorch is built for; `None` if it is built without CUDA.
    pub(super) cuda: Option<String>,
}

/// Reads all answers, sorted by rank and process. Leaves out unreadable files; [`unreadable`] names them.
pub(super) fn read(folder: &Folder) -> Vec<Answer> {
    let mut all: Vec<Answer> =
        files(folder, contract::ANSWER).into_iter().filter_map(|(.., path)| answer(&path)).collect();
    all.sort_by_key(|answer| (answer.rank, answer.pid));
    all
}

/// Returns the names of the answer files that [`answer`] cannot read.
pub(super) fn unreadable(folder: &Folder) -> Vec<String> {
    let is_none = |path: &Path| answer(path).is_none();
    let found = files(folder, contract::ANSWER).into_iter().filter(|(.., path)| is_none(path));
    found.map(|(name, ..)| name.to_string_lossy().into_owned()).collect()
}

/// Reads one answer. Returns `None` if the file is not an answer, or if a figure exceeds [`MAX_FIGURE`].
pub(super) fn answer(path: &Path) -> Option<Answer> {
    read_one(path).filter(Answer::is_plausible)
}

fn read_one<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&bytes(path)?).ok()
}

/// Reads the notes of the processes that imported PyTorch.
pub(super) fn started(folder: &Folder) -> Vec<Started> {
    files(folder, contract::STARTED).into_iter().filter_map(|(.., path)| read_one(&path)).collect()
}

/// Reads the errors of the rehearsal's own code that runs inside the script.
pub(super) fn faults(folder: &Folder) -> Vec<String> {
    let text = |path: PathBuf| Some(String::from_utf8_lossy(&bytes(&path)?).into_owned());
    files(folder, contract::FAULT).into_iter().filter_map(|(.., path)| text(path)).collect()
}

/// Returns the path of a Python that looked for PyTorch and has none.
pub(super) fn without_torch(folder: &Folder) -> Option<String> {
    let text = |path: PathBuf| Some(String::from_utf8_lossy(&bytes(&path)?).into_owned());
    files(folder, contract::NO_TORCH).into_iter().filter_map(|(.., path)| text(path)).find(|path| !path.is_empty())
}

/// Reads the script's requests that a rehearsal cannot fulfil.
pub(super) fn problems(folder: &Folder) -> BTreeSet<String> {
    let text = |path: PathBuf| Some(String::from_utf8_lossy(&bytes(&path)?).into_owned());
    files(folder, contract::PROBLEM).into_iter().filter_map(|(.., path)| text(path)).collect()
}

/// Reads lists of sentences that processes wrote into files with this ending.
pub(super) fn sentences(folder: &Folder, ending: &str) -> BTreeSet<String> {
    let list = |path: PathBuf| read_one::<Vec<String>>(&path).unwrap_or_default();
    files(folder, ending).into_iter().flat_map(|(.., path)| list(path)).collect()
}

/// Returns the path of a process's snapshot, if it wrote one.
pub(super) fn snapshot(folder: &Folder, pid: u64) -> Option<PathBuf> {
    let path = folder.answers().join(format!("{pid}{}", contract::SNAPSHOT));
    open_plain(&path).is_ok().then_some(path)
}

/// Returns the regular files whose names end with `ending`: name, time of the last write, path.
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

/// Reads a file. Returns `None` if it cannot be read or has more than [`MAX_BYTES`].
fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut contents = Vec::new();
    open_plain(path).ok()?.take(MAX_BYTES + 1).read_to_end(&mut contents).ok()?;
    (contents.len() as u64 <= MAX_BYTES).then_some(contents)
}
