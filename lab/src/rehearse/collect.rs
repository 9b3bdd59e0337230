//! Combines the answers of a run's processes into the result.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lab_base::error::{Error, Result};
use lab_results::report::Recording;
use lab_results::{OnCard, RehearsalResult, RehearsedGpu, RehearsedOom, RehearsedRank, RehearsedWorld, UnknownRead};
use lab_traces::snapshot::{Document, Snapshot, why_it_failed, write_pickle};
use lab_traces::stacks::Role;

use super::answers::{self, Answer, Place};
use super::categories::Told;
use super::contract;
use super::folder::Folder;
use super::no_torch::{self, NoTorch};
use super::open::Caches;
use super::places::{within, working_folder};
use super::plain::open_plain;
use super::protect::Keeper;
use super::request::{Request, RequestedCard};
use super::run::{Ending, Ran};
use super::{growth, lines, log, outputs, peak, phases, promise, verdict};

/// Maximum size of a snapshot that is read, in bytes.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 30;

/// Maximum size of a text that a script hands over.
const MAX_TOLD_BYTES: u64 = 4 << 20;

/// Beginning of a problem that has another cause if the script did not get what it asked a network for.
const NOTHING_ALLOCATED: &str = "PyTorch allocated nothing on a card";

/// Outcome of a rehearsal. Dropping it deletes its snapshots.
pub struct Rehearsed {
    /// Figures and findings.
    pub result: RehearsalResult,
    /// True if the user interrupted the rehearsal.
    pub interrupted: bool,
    /// Processes that wrote a snapshot, sorted by rank and process.
    pub(super) processes: Vec<Process>,
    /// The same script on a card with enough memory, if this run ran out and that one was made.
    pub(super) with_enough: Option<Box<Rehearsed>>,
    folder: Folder,
}

/// Process that wrote a snapshot.
pub(super) struct Process {
    pub(super) rank: u64,
    pub(super) pid: u64,
    /// Path of PyTorch's snapshot.
    pub(super) path: PathBuf,
    /// Purposes of addresses that the process reported.
    pub(super) told: Told,
    /// Lines of the backward pass, and the numbers of allocations until the snapshot, by card.
    lines: answers::Lines,
    made: Vec<(usize, u64)>,
}

impl Process {
    fn from_answer(answer: &Answer, path: PathBuf) -> Self {
        let made = answer.cards.iter().map(|card| (card.index, card.made)).collect();
        Self {
            rank: answer.rank,
            pid: answer.pid,
            path,
            told: Told::from_answer(answer),
            lines: answer.lines.clone(),
            made,
        }
    }

    /// Reads the snapshot, and adds the lines of the backward pass.
    pub(super) fn open(&self) -> Result<Snapshot> {
        let mut snapshot = open(&self.path)?;
        for (card, made) in &self.made {
            lines::add(&mut snapshot, *card, &self.lines, *made, &self.told.ends(*card));
        }
        Ok(snapshot)
    }

    /// Returns PyTorch's snapshot with what is known beside it: the purpose of each allocation, and the lines of the backward pass.
    fn document(&self) -> Result<Document> {
        let name = self.path.display().to_string();
        let snapshot = self.open()?;
        let mut document = document(&self.path)?;
        for (card, _) in &self.made {
            let (lives, roles) = self.told.roles(&snapshot, *card);
            let made = lives.iter().zip(&roles).filter_map(|(life, role)| Some((life.made?, *role)));
            let roles: HashMap<usize, Role> = made.collect();
            let category = |entry| Some(roles.get(&entry)?.category()?.name());
            document.tell_purposes(&name, *card, &snapshot, category)?;
        }
        Ok(document)
    }
}

/// The most further ranks that a page draws.
const MOST_OTHERS: usize = 7;

impl Rehearsed {
    /// Returns a Python that looked for PyTorch and has none, if none of the run has it.
    pub fn without_torch(&self) -> Option<NoTorch> {
        self.result.torch.is_none().then(|| NoTorch::read(&self.folder)).flatten()
    }

    /// Returns the ranks of the processes that wrote a snapshot, sorted.
    pub fn snapshots(&self) -> impl ExactSizeIterator<Item = u64> {
        self.processes.iter().map(|process| process.rank)
    }

    /// Writes the snapshot number `place` of [`Rehearsed::snapshots`]: PyTorch's own, with the purpose of each allocation and the lines of the
    /// backward pass. One that cannot be read, or that is too large, is copied as it is.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn write_snapshot(&self, place: usize, out: &mut dyn Write) -> io::Result<()> {
        let process = &self.processes[place];
        match process.document() {
            Ok(document) => write_pickle(&document, out),
            Err(_) => io::copy(&mut open_plain(&process.path)?, out).map(drop),
        }
    }

    /// Returns the memory history of one process, with the purpose of each allocation: that of [`Rehearsed::largest`]. Of a script that ran out
    /// of memory it is that of the run with enough memory, if there was one; the limit is that of the requested card.
    ///
    /// # Errors
    /// A snapshot that cannot be read.
    pub fn recording(&self) -> Result<Option<Recording>> {
        let Some((process, rank)) = self.drawn().largest() else { return Ok(None) };
        self.recording_of(process, rank, &self.result.command.join(" ")).map(Some)
    }

    /// Returns the histories of the other ranks' processes, each named by its rank: of very many the first.
    ///
    /// # Errors
    /// A snapshot that cannot be read.
    pub fn recordings_of_others(&self) -> Result<Vec<Recording>> {
        let drawn = self.drawn();
        let Some((largest, _)) = drawn.largest() else { return Ok(Vec::new()) };
        let others = drawn.known().filter(|(process, _)| process.pid != largest.pid).take(MOST_OTHERS);
        others.map(|(process, rank)| self.recording_of(process, rank, &format!("Rank {}", rank.rank))).collect()
    }

    /// The run that is drawn.
    fn drawn(&self) -> &Self {
        self.with_enough.as_deref().filter(|more| more.result.fits_so_far() == Some(true)).unwrap_or(self)
    }

    fn recording_of(&self, process: &Process, rank: &RehearsedRank, name: &str) -> Result<Recording> {
        let snapshot = process.open()?;
        let (lives, roles) = process.told.roles(&snapshot, rank.gpu);
        let mut recording = Recording::of_roles(name, &snapshot, rank.gpu, &lives, &roles);
        recording.limit = Some((self.result.gpu.name.clone(), self.result.gpu.room()));
        Ok(recording)
    }

    /// Returns the text of a file that the script wrote into the answers under this name, such as the plan of a driver.
    pub fn told(&self, name: &str) -> Option<String> {
        let bytes = std::io::Read::take(open_plain(&self.folder.answers().join(name)).ok()?, MAX_TOLD_BYTES);
        std::io::read_to_string(bytes).ok()
    }

    /// Returns the process that reserved most, with its figures on that card. A process that ran out of memory comes before all others.
    pub(super) fn largest(&self) -> Option<(&Process, &RehearsedRank)> {
        self.known().max_by_key(|(_, rank)| (rank.oom.is_some(), rank.peak_reserved, std::cmp::Reverse(rank.rank)))
    }

    /// Processes with a snapshot, each with its rank.
    fn known(&self) -> impl Iterator<Item = (&Process, &RehearsedRank)> {
        let of = |pid: u64| self.processes.iter().find(move |process| process.pid == pid);
        self.result.ranks.iter().filter_map(move |rank| Some((of(rank.pid)?, rank)))
    }
}

pub(super) fn collect(request: &Request, folder: Folder, caches: &Caches, ran: Ran, runs: u32) -> Result<Rehearsed> {
    let Ran { followed, keeper, before } = ran;
    let answers = answers::read(&folder);
    let started = answers::started(&folder);
    let card = &request.card;
    // An interrupted script may not have come so far.
    let mut problems = if followed.ending == Ending::Interrupted && answers.is_empty() {
        answers::faults(&folder)
    } else {
        problems(&folder, request, &answers, &started)
    };
    let asked = answers::sentences(&folder, contract::ASKED);
    if !asked.is_empty() || followed.exit_code().is_some_and(|code| code != 0) {
        // The script ended because of that, not because it chose another device.
        problems.retain(|problem| !problem.starts_with(NOTHING_ALLOCATED));
    }
    let mut ranks = Vec::new();
    for answer in &answers {
        ranks.extend(ranks_of(&folder, answer, card, &mut problems));
    }
    let (room, log): (Vec<_>, Vec<_>) =
        log::read(&folder, request.values).into_iter().partition(|one| one.event == log::NO_ROOM);
    let unknown_reads: Vec<UnknownRead> = answers.iter().flat_map(reads).collect();
    let layers = keeper.as_ref().map_or(&[][..], Keeper::layers);
    let files = outputs::collect(&folder, layers, caches, request.keep_outputs.as_deref())?;
    let changed = before.changes(&files.paths);
    problems.extend(promise::problem(&changed));
    let sent: Vec<String> = answers.iter().flat_map(|answer| answer.withheld.iter().cloned()).collect();
    let exception = answers.iter().find_map(|answer| answer.exception.as_ref());
    let is_whole = verdict::is_whole(&followed, &answers, &log);
    let inexact = if is_whole { verdict::inexact(&unknown_reads, &log, &problems, &ranks) } else { Vec::new() };
    // These change no size.
    problems.splice(..0, folder.lacks_room(layers, room.first().map(|one| one.name.as_str())));
    problems.extend(files.problems);
    problems.extend(super::arguments::unread(&request.command));
    problems.extend(keeper.as_ref().and_then(|keeper| promise::warning(keeper.way())).map(String::from));
    let result = RehearsalResult {
        command: request.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        gpu: RehearsedGpu {
            name: card.name.clone(),
            count: request.cards,
            total_bytes: card.total_bytes,
            context_bytes: card.context_bytes,
            capability: format!("{}.{}", card.capability.0, card.capability.1),
        },
        world: request.world.as_ref().map(|world| RehearsedWorld { size: world.size, started: world.ranks.clone() }),
        torch: started.first().map(|started| started.torch.clone()),
        fits: verdict::fits(&followed, &answers, &log, &ranks),
        on_card: OnCard::default(),
        exact: is_whole && inexact.is_empty() && !changed.is_unexplained(),
        exact_to: if is_whole { inexact.iter().map(|reason| reason.bytes).sum() } else { None },
        inexact,
        stopped: stopped(followed.ending).into(),
        script_exit: followed.exit_code(),
        exception: exception.map(|exception| format!("{}: {}", exception.r#type, exception.message)),
        runs,
        with_memory_enough: None,
        what_if: None,
        tries: None,
        made_up: answers::sentences(&folder, contract::MADE_UP).into_iter().collect(),
        asked: asked.into_iter().collect(),
        not_reached: verdict::not_reached(&followed, &answers),
        phases: phases::phases(&answers, &|answer| snapshot_of(&folder, answer)?.ok()),
        ranks,
        unknown_reads,
        not_as_on_a_card: [log, log::together(&folder)].concat(),
        withheld_count: files.count + sent.len() as u64,
        withheld: files.names.into_iter().chain(sent).collect(),
        changed: promise::names(&changed, caches.working()),
        contacted: keeper.as_ref().map(|keeper| keeper.contacted().to_vec()).unwrap_or_default(),
        refused: keeper.as_ref().map(|keeper| keeper.vetoed().to_vec()).unwrap_or_default(),
        protection: promise::protection(keeper.as_ref(), &changed),
        kept_in: request.keep_outputs.as_ref().map(|folder| folder.display().to_string()),
        problems,
        snapshot: None,
    };
    let process = |answer: &Answer| {
        let path = answers::snapshot(&folder, answer.pid)?;
        Some(Process::from_answer(answer, path))
    };
    let processes = answers.iter().filter_map(process).collect();
    let interrupted = followed.ending == Ending::Interrupted;
    Ok(Rehearsed { result, interrupted, processes, with_enough: None, folder })
}

fn stopped(ending: Ending) -> &'static str {
    match ending {
        Ending::Ended => "end",
        Ending::Steps => "steps",
        Ending::Seen => "seen",
        Ending::Time => "time",
        Ending::Interrupted => "interrupted",
    }
}

/// Returns sentences on what the rehearsal could not find out, and why.
fn problems(folder: &Folder, request: &Request, answers: &[Answer], started: &[answers::Started]) -> Vec<String> {
    let mut found = answers::faults(folder);
    found.iter_mut().for_each(|fault| *fault = format!("a part of the rehearsal failed inside the script: {fault}"));
    found.extend(answers::problems(folder));
    found.extend(answers::unreadable(folder).iter().map(|name| format!("the answer {name} cannot be read")));
    if started.is_empty() {
        let unknown = || {
            "no Python of the command imported PyTorch under the rehearsal. Is it a shell script that clears the \
             environment, a container, or a Python started with -I, -S or -E?"
                .into()
        };
        let empty = request
            .command
            .iter()
            .find(|word| std::fs::metadata(word).is_ok_and(|file| file.is_file() && file.len() == 0));
        let why = match empty {
            Some(file) => Some(format!("{} is empty", file.to_string_lossy())),
            None => no_torch::problem(folder, request),
        };
        found.push(why.unwrap_or_else(unknown));
    } else if answers.is_empty() {
        match started.iter().find(|started| started.cuda.is_none()) {
            Some(built) => found.push(format!(
                "this PyTorch ({}) is built without CUDA: install the build for CUDA; it needs no GPU here",
                built.torch
            )),
            None => found.push(format!("{NOTHING_ALLOCATED}: does the script choose device cuda?")),
        }
    }
    for answer in answers.iter().filter(|answer| answer.why == "running") {
        found.push(format!(
            "process {} (rank {}) ended without a final report, after step {}: its figures are those of that step",
            answer.pid, answer.rank, answer.steps
        ));
    }
    for answer in answers {
        let beyond = answer.values.as_ref().map_or(0, |values| values.beyond);
        if beyond > 0 {
            found.push(format!("rank {}: {beyond} more reads are not listed one by one", answer.rank));
        }
    }
    found
}

/// Returns the figures of a process, one entry for each card that it used. Adds to `problems` if its snapshot is unreadable or incomplete.
fn ranks_of(
    folder: &Folder,
    answer: &Answer,
    requested: &RequestedCard,
    problems: &mut Vec<String>,
) -> Vec<RehearsedRank> {
    let snapshot = match snapshot_of(folder, answer) {
        Some(Ok(snapshot)) => Some(snapshot),
        Some(Err(error)) => {
            problems.push(format!("the snapshot of rank {} cannot be read: {error}", answer.rank));
            None
        }
        None => None,
    };
    let (working, told) = (working_folder(), Told::from_answer(answer));
    let of_card = |card: &answers::Card| {
        let oom = answer.oom.as_ref().filter(|oom| oom.card == card.index);
        let held = snapshot.as_ref().map(|snapshot| {
            let moment = peak::moment(snapshot, card.index, oom.is_some());
            peak::held(snapshot, card.index, moment, &told, &working)
        });
        let held = held.unwrap_or_default();
        RehearsedRank {
            rank: answer.rank,
            gpu: card.index,
            pid: answer.pid,
            steps: answer.steps,
            peak_allocated: card.peak_allocated,
            peak_reserved: card.peak_reserved,
            ooms: card.ooms,
            oom: oom.map(|oom| ran_out(oom, snapshot.as_ref(), &working)),
            at_peak: held.lines,
            by_category: held.by_category,
            growth: growth::growth(answer, card, snapshot.as_ref(), requested, &working),
            host_locked: answer.host.locked,
            host_managed: answer.host.managed,
        }
    };
    let ranks: Vec<RehearsedRank> = answer.cards.iter().map(of_card).collect();
    let full = |card: &answers::Card| {
        snapshot.as_ref().is_some_and(|snapshot| snapshot.trace(card.index).len() as u64 >= answer.entries)
    };
    if answer.cards.iter().any(full) {
        problems.push(format!(
            "rank {}: only the last {} events were kept; the lines of the peak may be missing",
            answer.rank, answer.entries
        ));
    }
    ranks
}

/// Reads the snapshot of an answer's process, if it wrote one.
fn snapshot_of(folder: &Folder, answer: &Answer) -> Option<Result<Snapshot>> {
    answers::snapshot(folder, answer.pid).map(|path| Process::from_answer(answer, path).open())
}

/// Describes the first failed allocation. The snapshot was written at that time.
fn ran_out(oom: &answers::Oom, snapshot: Option<&Snapshot>, working: &str) -> RehearsedOom {
    let free_in_reserved = oom.reserved.saturating_sub(oom.allocated);
    RehearsedOom {
        requested: oom.requested,
        allocated: oom.allocated,
        reserved: oom.reserved,
        place: within(&oom.r#where, working),
        steps: oom.step,
        free_on_device: oom.free,
        free_in_reserved,
        largest_free: snapshot.map(|snapshot| snapshot.totals(oom.card).largest_free),
        // Whether segments are expandable is not in the answer.
        verdict: why_it_failed(oom.requested, oom.free, free_in_reserved, true).into(),
    }
}

pub(super) fn open(path: &Path) -> Result<Snapshot> {
    document(path)?.into_snapshot(&path.display().to_string())
}

fn document(path: &Path) -> Result<Document> {
    let name = path.display().to_string();
    let file = open_plain(path).map_err(|error| Error::usage(&name, error.to_string()))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    if bytes > MAX_SNAPSHOT_BYTES {
        return Err(Error::usage("it", format!("has {bytes} bytes; at most {MAX_SNAPSHOT_BYTES} are read")));
    }
    Ok(Document::read(&name, file)?.0)
}

fn reads(answer: &Answer) -> Vec<UnknownRead> {
    let working = working_folder();
    let read = |place: &Place| UnknownRead {
        rank: answer.rank,
        event: place.event.clone(),
        place: within(&place.r#where, &working),
        inside: within(&place.inside, &working),
        operator: place.operator.clone(),
        kind: place.kind.clone(),
        bytes: place.bytes,
        answer: place.answer.clone(),
        count: place.count,
    };
    answer.values.iter().flat_map(|values| &values.places).map(read).collect()
}
