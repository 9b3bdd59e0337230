//! Starts the command, follows its processes, and ends them.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use lab_base::error::Result;

use super::answers::{self, Answer};
use super::changed::{Before, named_in};
use super::commands::Commands;
use super::contract;
use super::folder::Folder;
use super::open::Caches;
use super::processes::{Processes, adopt_orphans};
use super::progress::{Progress, Stage, Watch};
use super::protect::Keeper;
use super::request::Request;

/// Time between two looks at the files.
const PAUSE: Duration = Duration::from_millis(50);

/// Time after which the first line of progress is shown, and between two lines before the first step.
const FIRST_LINE: Duration = Duration::from_millis(150);
const NEXT_LINE: Duration = Duration::from_secs(10);

/// Endings of the files by which a process tells that it reached a stage, the last stage first.
const STAGES: [(&str, Stage); 3] =
    [(contract::STARTED, Stage::Building), (contract::IMPORTS, Stage::Importing), (contract::PYTHON, Stage::Python)];

/// Maximum time that the first rank that is done waits for the others.
const RANKS_TIME: Duration = Duration::from_secs(60);

/// Reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The command ended by itself.
    Ended,
    /// The requested number of steps was done.
    Steps,
    /// All requested uses of the network were seen.
    Seen,
    /// The requested time was over.
    Time,
    /// The user interrupted the run.
    Interrupted,
}

#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) ending: Ending,
    /// Exit status of the command; `None` if the command did not end by itself.
    pub(super) exit: Option<ExitStatus>,
}

impl Followed {
    /// True if the script did everything that was requested, and did not fail.
    pub(super) fn is_complete(&self) -> bool {
        match self.ending {
            Ending::Ended => self.exit.is_some_and(|exit| exit.success()),
            Ending::Steps | Ending::Seen => true,
            Ending::Time | Ending::Interrupted => false,
        }
    }

    /// Returns the exit code, as a shell reports it: 128 plus the signal if a signal ended the command.
    pub(super) fn exit_code(&self) -> Option<i32> {
        let exit = self.exit?;
        exit.code().or_else(|| exit.signal().map(|signal| 128 + signal))
    }
}

/// A run that has ended.
pub(super) struct Ran {
    pub(super) followed: Followed,
    /// What kept the user's files, and still holds what was written; `None` in tests of what comes after.
    pub(super) keeper: Option<Keeper>,
    /// The folders that must not change, as they were.
    pub(super) before: Before,
}

/// Runs the command until it ends or a stop condition holds, then ends all of its processes.
pub(super) fn run(request: &Request, folder: &Folder, caches: &Caches, watch: &mut Watch) -> Result<Ran> {
    adopt_orphans();
    let mut roots = vec![caches.working().to_path_buf()];
    roots.extend(named_in(&request.command, caches.working()));
    let kept = request.keep_outputs.as_ref().and_then(|kept| kept.canonicalize().ok());
    let own = [folder.path().into()].into_iter().chain(kept);
    let before = Before::look(roots, caches.folders().iter().cloned().chain(own).collect());
    let processes = Processes::before();
    let mut commands = Commands::start(request, folder, caches, &before, watch)?;
    let processes = processes.without(commands.keeper());
    let (asked, mut exit) = follow(&mut commands, request, folder, watch);
    let own_end = exit.is_some();
    let answers = folder.answers();
    let mut reap = || {
        if exit.is_none() {
            exit = commands.ended();
        }
    };
    processes.end(|pid| answers.join(format!("{pid}.started")).exists(), &mut reap);
    let ending = match asked {
        Some(ending) => ending,
        None => ending_of(&answers::read(folder), own_end && exit.is_some_and(|exit| !exit.success())),
    };
    // Hears what the keeper still tells.
    commands.ended();
    if folder.ends_within_a_line() {
        let _later = watch(Some(Progress::LineLeft));
    }
    let followed = Followed { ending, exit: exit.filter(|_| own_end) };
    Ok(Ran { followed, keeper: Some(commands.into_keeper()), before })
}

/// Returns the reason for the end of a command that this program did not end. If it failed and a rank reports an exception, it ended by
/// itself, even if other ranks had done their steps.
fn ending_of(answers: &[Answer], failed: bool) -> Ending {
    let why = |why: &str| answers.iter().any(|answer| answer.why == why);
    if failed && answers.iter().any(|answer| answer.exception.is_some()) {
        Ending::Ended
    } else if why("steps") {
        Ending::Steps
    } else if why("seen") {
        Ending::Seen
    } else {
        Ending::Ended
    }
}

/// Waits until the command ends, or there is a reason to end it.
fn follow(
    commands: &mut Commands,
    request: &Request,
    folder: &Folder,
    watch: &mut Watch,
) -> (Option<Ending>, Option<ExitStatus>) {
    let start = Instant::now();
    let mut seen = Seen::default();
    loop {
        if let Some(exit) = commands.ended() {
            // Shows the last progress. The command has ended, so an interrupt changes nothing.
            let _ended = watch(between_lines(seen.look(folder), folder));
            return (None, Some(exit));
        }
        let progress = seen.look(folder).or_else(|| seen.before_the_first_step(folder, start));
        let progress = between_lines(progress, folder);
        if watch(progress).is_break() {
            return (Some(Ending::Interrupted), None);
        }
        if request.stop.time.is_some_and(|most| start.elapsed() >= most) {
            return (Some(Ending::Time), None);
        }
        if seen.all_ranks_are_done(commands.ranks()) {
            folder.say_stop();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the progress, unless the script has begun a line that is not at its end: the next progress says the same.
fn between_lines(progress: Option<Progress>, folder: &Folder) -> Option<Progress> {
    progress.filter(|_| !folder.ends_within_a_line())
}

/// Answers read so far.
#[derive(Default)]
struct Seen {
    /// By file name: the time of the last write, and the answer.
    files: HashMap<std::ffi::OsString, (SystemTime, Answer)>,
    steps: u64,
    done_since: Option<Instant>,
    /// The stage that was told last, and when.
    told: Option<(Stage, Instant)>,
}

impl Seen {
    /// Reads new answers. Returns the progress if the number of steps has grown.
    fn look(&mut self, folder: &Folder) -> Option<Progress> {
        let mut changed = false;
        for (name, written, path) in answers::files(folder, contract::ANSWER) {
            if self.files.get(&name).is_some_and(|(before, _)| *before == written) {
                continue;
            }
            if let Some(answer) = answers::answer(&path) {
                self.files.insert(name, (written, answer));
                changed = true;
            }
        }
        let all = || self.files.values().map(|(_, answer)| answer);
        let steps = all().map(|answer| answer.steps).max().unwrap_or(0);
        if !changed || steps <= self.steps {
            return None;
        }
        let peak_allocated_bytes = all().flat_map(|answer| &answer.cards).map(|card| card.peak_allocated).max();
        self.steps = steps;
        Some(Progress::Step { steps, peak_allocated_bytes: peak_allocated_bytes.unwrap_or(0) })
    }

    /// Returns what the script does before its first step, if that has changed or was told some time ago.
    fn before_the_first_step(&mut self, folder: &Folder, start: Instant) -> Option<Progress> {
        if self.steps > 0 || start.elapsed() < FIRST_LINE {
            return None;
        }
        let reached = |(ending, _): &&(&str, Stage)| !answers::files(folder, ending).is_empty();
        let stage = STAGES.iter().find(reached).map_or(Stage::Starting, |(_, stage)| *stage);
        let is_known = self.told.is_some_and(|(told, at)| told == stage && at.elapsed() < NEXT_LINE);
        if is_known {
            return None;
        }
        self.told = Some((stage, Instant::now()));
        Some(Progress::Before { stage, seconds: start.elapsed().as_secs() })
    }

    /// True if every rank is done, or if the first was done more than [`RANKS_TIME`] ago.
    fn all_ranks_are_done(&mut self, started: Option<usize>) -> bool {
        let done = |answer: &&Answer| matches!(answer.why.as_str(), "steps" | "seen");
        let done: Vec<&Answer> = self.files.values().map(|(_, answer)| answer).filter(done).collect();
        let Some(world) = done.iter().map(|answer| answer.world).max() else { return false };
        let (count, world) = (done.len() as u64, started.map_or(world, |started| started as u64));
        let since = *self.done_since.get_or_insert_with(Instant::now);
        count >= world || since.elapsed() > RANKS_TIME
    }
}
